"""The walk of `rmqctl browse`: what a store's verbs answer, as views on a terminal; nothing is found out here.

It lies with the commands, since it shows values as they do, and the library knows no terminal. Only this room knows
Textual. A view reads in a thread of its own, and holds what is on the screen, not what is in the store.
"""
