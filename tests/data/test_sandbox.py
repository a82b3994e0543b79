"""The sandbox: no way out of the folder, no network, limits, time-outs, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.envs import FAMILIES, make_task
from data.envs.bash import BashEnvironment
from data.sandbox import Sandbox, can_isolate, refused_text

isolated = pytest.mark.skipif(not can_isolate(), reason="this machine does not allow namespaces")


@pytest.fixture(params=[True, False], ids=["isolated", "checked"])
def box(request: pytest.FixtureRequest) -> Sandbox:
    if request.param and not can_isolate():
        pytest.skip("this machine does not allow namespaces")
    return Sandbox(isolate=request.param)


def test_commands_share_the_folder_and_nothing_else(box: Sandbox) -> None:
    with box:
        assert box.run("echo hello > a.txt; mkdir d; cd d; export X=1").code == 0
        assert box.run("cat a.txt; echo $X$(basename $PWD)").text.split() == ["hello", "box"]
        assert box.run("exit 3").code == 3
        assert box.run("echo 'unclosed").code != 0
        assert box.run("echo still here").text == "still here\n"


def test_a_slow_command_and_endless_output_end(box: Sandbox) -> None:
    with box:
        box.run("echo kept > kept.txt")
        ran = box.run("sleep 30", timeout_s=0.3)
        assert (ran.code, ran.timed_out) == (124, True)
        assert box.run("yes", timeout_s=10).code == 124
        assert box.run("cat kept.txt").text == "kept\n"


def test_a_runaway_process_meets_a_limit(box: Sandbox) -> None:
    with box:
        assert box.run("head -c 200000000 /dev/zero > big").code != 0
        assert box.run("stat -c %s big").text.strip() <= "67108864"


@isolated
def test_the_machine_is_out_of_reach(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    with Sandbox(isolate=True) as box:
        for command in (f"cat {secret}", f"ln -s {secret} s; cat s", "cat ../../../../../etc/passwd", "cd ..; cat ../etc/shadow",
                        f"echo x > {secret}", "touch /usr/evil", "mknod d b 8 0", "mount -t tmpfs none /box", "chroot . true"):  # fmt: skip
            ran = box.run(command)
            assert ran.code != 0 and "secret\n" not in ran.text, (command, ran)
    assert secret.read_text() == "secret"


@isolated
def test_no_network() -> None:
    with Sandbox(isolate=True) as box:
        assert box.run("exec 3<>/dev/tcp/127.0.0.1/22").code != 0
        assert "Network is unreachable" in box.run("exec 3<>/dev/tcp/192.0.2.1/80").text


@isolated
def test_background_processes_die_with_the_box() -> None:
    with Sandbox(isolate=True) as box:
        box.run("sleep 4321 & disown")
        assert box.num_processes >= 1
    assert "sleep 4321" not in subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("command", ["cat ../x", "cat /etc/passwd", "echo >/root/x", "ls ~", "cd ..", "cat 'a' \"/etc/passwd\""])
def test_the_text_check_refuses_ways_out(command: str) -> None:
    assert refused_text(command)


@pytest.mark.parametrize(
    "command", ["awk '/void/ {print}' a", "sed 's/a/b/' a > b", "echo a >/dev/null", "ls .git/refs", "grep a..b c"]
)
def test_the_text_check_lets_ordinary_commands_pass(command: str) -> None:
    assert refused_text(command) is None


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    for _ in range(5):
        with Sandbox(scratch=tmp_path) as box:
            box.run("mkdir -p a/b; echo x > a/b/c")
            assert box.run("ls -A").text == "a\n"
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_behind_after_a_kill(tmp_path: Path) -> None:
    code = f"from data.sandbox import Sandbox; b = Sandbox(scratch={str(tmp_path)!r}); b.run('echo x > y'); "
    code += "print('up', flush=True); input()"
    root = Path(__file__).parents[2]
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + 20
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_is_left_behind_after_a_thousand_tasks(tmp_path: Path) -> None:
    """One worker takes a thousand tasks after one another, some with time-outs and strays; then its box is closed."""
    environment = BashEnvironment(Sandbox(scratch=tmp_path))
    tasks = [make_task(name, seed, 12) for seed in range(100) for name in sorted(FAMILIES)]
    assert len(tasks) == 1000
    for number, task in enumerate(tasks):
        environment.reset(task)
        assert environment.step("bash", {"cmd": "touch stray; mkdir -p deep/er; ln -s /etc/passwd link"}).text is not None
        if number % 100 == 50:
            environment.sandbox.run("sleep 4322 & disown")
            environment.sandbox.run("sleep 30", timeout_s=0.2)
        environment.check()
        assert len(list(tmp_path.iterdir())) == 1
    environment.close()
    assert list(tmp_path.iterdir()) == []
    assert "sleep 4322" not in subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout
