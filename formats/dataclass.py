"""Data classes whose methods are made when they are first called.

``dataclasses.dataclass`` compiles each method of each class while its module is imported, in Python 3.11 half a
millisecond a class: a quarter of the time of a command on a small store, for classes most of which it never makes.
Here the standard library collects the fields, and ``__init__`` alone is compiled, by the first call. ``fields``,
``replace``, ``asdict``, ``match``, ``inspect.signature`` and pickles know no difference; a type checker sees the
decorator of the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from dataclasses import MISSING, FrozenInstanceError, fields
    from functools import partial
    from inspect import signature
    from operator import attrgetter
    from reprlib import recursive_repr

    _LEFT_OUT = object()

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """Make a class a data class, as the standard decorator does with these arguments; others are not used here."""
        if cls is None:
            return partial(_declared, frozen=frozen, slots=slots, eq=eq)
        return _declared(cls, frozen=frozen, slots=slots, eq=eq)

    def _declared(cls, *, frozen, slots, eq):
        own = dict(vars(cls))
        if cls.__doc__ is None:
            cls.__doc__ = cls.__qualname__  # else the signature is taken apart to make one
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
        methods = {"__init__": _first_init(made, frozen), "__repr__": _repr}
        if eq:
            methods |= _comparison(made, frozen)
        if frozen and slots:
            methods |= {"__getstate__": _state, "__setstate__": _restore}
        if own.get("__hash__") is None:
            own.pop("__hash__", None)  # Python's own None beside an `__eq__` is nobody's wish
        for name, method in methods.items():
            if name not in own:
                setattr(made, name, method)
        made.__signature__ = _Signature()
        if frozen:
            made.__setattr__, made.__delattr__ = _refusals(made)
        return made

    def _first_init(cls, frozen):
        def first(self, *values, **named):
            cls.__init__ = init = first.compiled()
            init(self, *values, **named)

        first.compiled = partial(_init, cls, frozen)
        return first

    class _Signature:
        """What ``inspect.signature`` of the class asks for."""

        def __get__(self, one, cls):
            init = getattr(cls.__init__, "compiled", lambda: cls.__init__)()
            found = signature(init)
            return found.replace(parameters=list(found.parameters.values())[1:])

    def _init(cls, frozen):
        """Compile what takes the fields as arguments and sets them."""
        known = {"__set__": object.__setattr__, "__left_out__": _LEFT_OUT}
        by_place, by_name, lines = ["self"], [], []
        for field in fields(cls):
            name, default, value = field.name, f"__default_{field.name}__", field.name
            if field.default_factory is not MISSING:
                known[default] = field.default_factory
                value = f"{default}() if {name} is __left_out__ else {name}" if field.init else f"{default}()"
                default = "__left_out__"
            elif field.default is not MISSING:
                known[default] = field.default
                value = name if field.init else default
            else:
                default = None
                if not field.init:
                    continue
            if field.init:
                (by_name if field.kw_only else by_place).append(f"{name}={default}" if default else name)
            lines.append(f"__set__(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        arguments = ", ".join([*by_place, "*", *by_name] if by_name else by_place)
        exec("\n ".join([f"def __init__({arguments}):", *(lines or ["pass"])]), known)  # noqa: S102 - names of fields
        known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return known["__init__"]

    @recursive_repr("...")
    def _repr(self):
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _comparison(cls, frozen):
        names = [field.name for field in fields(cls) if field.compare]
        if len(names) > 1:
            values = attrgetter(*names)
        else:

            def values(one):
                return tuple(getattr(one, name) for name in names)

        def equal(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def hashed(self):
            return hash(values(self))

        return {"__eq__": equal, "__hash__": hashed if frozen else None}

    def _refusals(cls):
        names = frozenset(field.name for field in fields(cls))

        def refuse_to_set(self, name, value):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def refuse_to_delete(self, name):
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        return refuse_to_set, refuse_to_delete

    def _state(self):
        return [getattr(self, field.name) for field in fields(self)]

    def _restore(self, state):
        for field, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
