"""Ctrl-C and SIGTERM at any moment: one line, the right exit status, the cursor shown, nothing half made unmarked."""

from __future__ import annotations

import importlib.machinery
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fixtures import golden
from rmqctl.files.new_files import MARK

ROOT = Path(__file__).parents[2]
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"


def interrupted(arguments: list[str], number: int, after: float) -> tuple[int, bytes]:
    """Exit status (negative: the signal) and output of a run on a terminal of its own, with a signal after some seconds."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "rmqctl", *arguments])
    begun, out, sent = time.monotonic(), b"", False
    while True:
        if select.select([terminal], [], [], 0.01)[0]:
            try:
                out += os.read(terminal, 1 << 16)
            except OSError:
                pass
        if not sent and time.monotonic() - begun > after:
            os.kill(pid, number)
            sent = True
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() - begun > after + 20:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail(f"signal {number} after {after} s was swallowed")
    try:
        while more := os.read(terminal, 1 << 16):
            out += more
    except OSError:
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), out


@pytest.mark.parametrize("after", [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0])
@pytest.mark.parametrize(("number", "codes"), [(signal.SIGINT, {130, 0, -2}), (signal.SIGTERM, {143, -15})])
def test_following_ends_whenever_the_signal_comes(after: float, number: int, codes: set[int]) -> None:
    store = golden.pristine("4.9.8-clean")
    code, out = interrupted(["dump", str(store), "--follow", "--topic", "LabOrders"], number, after)
    assert code in codes
    assert b"Traceback" not in out
    assert out.count(HIDE) <= out.count(SHOW)


SWALLOWS = """
    import sys, time
    import commands, commands.info
    def quiet(*args, **kwargs):
        print("at work", flush=True)
        for _ in range(3):
            try:
                time.sleep(30)
            except BaseException:
                pass
        raise ImportError("partially initialized module")
    commands.info.command.callback = quiet
    sys.argv = ["rmqctl", "info", "x"]
    commands.main()
"""


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [(signal.SIGINT, 130, b"rmqctl: interrupted\n"), (signal.SIGTERM, 143, b"rmqctl: ended by SIGTERM\n")],
)
def test_a_signal_that_code_of_others_swallows_is_not_lost(number: int, code: int, says: bytes) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SWALLOWS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, says)


SLOW = """
    import sys, time
    from rmqctl.rocketmq.rebuild import rebuild
    from rmqctl.rocketmq.salvage import salvage as write
    def slow(*args, **kwargs):
        print("at work", flush=True)
        time.sleep(30)
    rebuild.Rebuild.run = slow
    write.Writer.write = slow
    from commands import main
    sys.argv = ["rmqctl", *sys.argv[1:]]
    main()
"""


@pytest.mark.parametrize("command", [["rebuild", "--into"], ["salvage"]])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_what_was_not_finished_is_removed_or_marked(command: list[str], number: int, code: int, tmp_path: Path) -> None:
    store, into = golden.pristine("4.9.8-clean"), tmp_path / "into"
    words = [command[0], str(store), *command[1:], str(into)]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW), *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == code
    if number != signal.SIGKILL:
        assert not into.exists()
        return
    assert (into / MARK).exists()
    again = subprocess.run([sys.executable, "-m", "rmqctl", *words], cwd=ROOT, capture_output=True, check=False)
    assert again.returncode == 13
    assert b"left unfinished by an earlier run" in again.stderr


def test_an_alarm_of_somebody_else_ends_the_work(tmp_path: Path) -> None:
    script = tmp_path / "alarmed.py"
    script.write_text(
        textwrap.dedent("""
        import signal, sys, time
        import commands, commands.info
        def slow(*args, **kwargs):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            time.sleep(30)
        commands.info.command.callback = slow
        sys.argv = ["rmqctl", "info", "x"]
        commands.main()
    """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (143, b"")
    assert b"Traceback" not in done.stderr


def test_nothing_is_imported_before_ctrl_c_is_the_systems() -> None:
    """What an interpreter has imported by itself it has imported before anybody can say anything about signals."""
    code = "import sys; before = set(sys.modules); import rmqctl.__main__; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    light = {"__future__", "_signal", "atexit", "gc", "rmqctl", "rmqctl.__main__"}
    assert set(done.stdout.split()) <= light


@pytest.mark.parametrize("after", [0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3])
def test_an_alarm_while_python_imports(after: float) -> None:
    """Whoever starts rmqctl may have set an alarm, which the new program inherits."""
    done = subprocess.run(
        [sys.executable, "-m", "rmqctl", "--help"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, after),
    )
    assert done.returncode in {0, -signal.SIGALRM, 128 + signal.SIGTERM}
    assert b"Traceback" not in done.stderr


MAKES_EXTENSION = """
    import os, signal
    from commands import _signals
    class ExtensionFileLoader:
        def exec_module(self):
            os.kill(os.getpid(), signal.SIGTERM)
            print("made", flush=True)
    with _signals.handled():
        try:
            ExtensionFileLoader().exec_module()
            signal.pause()
        except _signals.Terminated:
            print("interrupted")
"""


def test_a_signal_waits_while_an_extension_module_comes_up() -> None:
    command = [sys.executable, "-c", textwrap.dedent(MAKES_EXTENSION)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == (b"made\ninterrupted\n", b"")


def test_the_class_that_makes_extension_modules_has_the_name_by_which_a_signal_knows_it() -> None:
    assert importlib.machinery.ExtensionFileLoader.exec_module.__qualname__ == "ExtensionFileLoader.exec_module"
