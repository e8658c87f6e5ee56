"""The folder of topics is private, shows who publishes, and keeps nothing of those who are gone."""

from __future__ import annotations

import os
import resource
import select
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import LinkError, TopicError
from headrace.link.handshake import Purpose
from headrace.link.listener import Listener
from headrace.topics import TopicFolder
from headrace.topics.discovery import PublisherGone
from tests.harness.files import open_files


@pytest.fixture
def folder(tmp_path: Path) -> TopicFolder:
    # Longer than the path of a socket may be.
    return TopicFolder(tmp_path / ("long" * 30) / "topics")


def names(folder: TopicFolder) -> list[str]:
    return sorted(os.listdir(folder.path))


def announce(folder: TopicFolder, topic: str) -> Any:
    return folder.announce(topic, time.time_ns(), lambda purpose: None)


def abandon(folder: TopicFolder, topic: str) -> None:
    """Leave a socket behind, as a killed publisher does."""
    announcement = announce(folder, topic)
    announcement.watch.close()
    Listener.close(announcement)


def test_a_publisher_is_found_until_it_closes(folder: TopicFolder) -> None:
    assert folder.publishers() == []
    announcement = announce(folder, "plant/boxes")
    (publisher,) = folder.publishers("plant/boxes")
    assert (publisher.topic, publisher.pid, publisher.host) == ("plant/boxes", os.getpid(), "")
    assert folder.publishers("plant") == []
    assert folder.is_alive(publisher)
    announcement.close()
    assert folder.publishers() == []
    assert names(folder) == []


def test_the_newest_publisher_compares_as_the_greatest(folder: TopicFolder) -> None:
    first, second = announce(folder, "a"), announce(folder, "a")
    assert max(folder.publishers("a")).place == second.name
    second.close()
    assert max(folder.publishers("a")).place == first.name
    first.close()


def test_the_socket_of_a_killed_publisher_is_removed_by_whoever_finds_it(folder: TopicFolder) -> None:
    abandon(folder, "a")
    alive = announce(folder, "a")
    gone, there = sorted(folder.publishers("a"))
    with pytest.raises(PublisherGone):
        folder.connect(gone, Purpose("topic", "a"))
    assert folder.publishers("a") == [there]
    with pytest.raises(PublisherGone):
        folder.connect(gone, Purpose("topic", "a"))
    assert not folder.is_alive(gone)
    assert folder.publishers("a") == [there]
    assert folder.is_alive(there)
    alive.close()


def test_a_socket_that_never_listened_is_removed_when_its_process_is_gone(folder: TopicFolder) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    ended = process.pid
    folder.publishers()
    place = folder.path
    for pid in (ended, os.getpid()):
        (place / f".a@1f-{pid}").touch()
    (place / "something else").touch()
    announce(folder, "b").close()
    assert names(folder) == [f".a@1f-{os.getpid()}", "something else"]
    assert folder.publishers() == []


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir(mode=0o700)
    (tmp_path / "topics").chmod(0o750)
    with pytest.raises(TopicError, match="has the mode 0750, so that others can enter it; .*chmod 700"):
        announce(TopicFolder(tmp_path / "topics"), "a")


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "topics").mkdir(mode=0o700)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(TopicError, match=f"belongs to the user {other - 1}, .* of the user {other}; set"):
        TopicFolder(tmp_path / "topics").publishers()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_a_file_in_place_of_the_folder_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if kind == "link":
        (tmp_path / "topics").symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "topics").touch()
    with pytest.raises(TopicError, match="is not a folder"):
        announce(TopicFolder(tmp_path / "topics"), "a")


def test_the_environment_chooses_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_TOPICS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    TopicFolder().publishers()
    assert (tmp_path / "headrace-topics").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("HEADRACE_TOPICS", str(tmp_path / "mine"))
    TopicFolder().publishers()
    assert (tmp_path / "mine").is_dir()
    monkeypatch.delenv("HEADRACE_TOPICS")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert repr(TopicFolder()) == f"TopicFolder('/tmp/headrace-topics-{os.geteuid()}')"


def test_a_watch_tells_of_a_new_publisher_that_listens_already(folder: TopicFolder) -> None:
    watch = folder.watch("a")
    try:
        assert not is_readable(watch)
        announcement = announce(folder, "a")
        assert is_readable(watch)
        watch.clear()
        assert not is_readable(watch)
        announcement.close()
        assert not is_readable(watch)
    finally:
        watch.close()


def test_a_watch_survives_the_folder(folder: TopicFolder) -> None:
    watch = folder.watch("a")
    try:
        folder.path.rmdir()
        assert is_readable(watch)
        watch.clear()
        announcement = announce(folder, "a")
        assert is_readable(watch)
        announcement.close()
    finally:
        watch.close()


@pytest.mark.parametrize("times", [1, 3])
def test_a_folder_that_is_removed_while_it_is_used_is_made_again(
    folder: TopicFolder, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    opened = os.open
    left = times

    def remove_and_open(path: Any, *arguments: Any) -> int:
        nonlocal left
        if path == folder.path and left:
            left -= 1
            folder.path.rmdir()
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", remove_and_open)
    announcement = announce(folder, "a")
    assert (announcement.is_there(), left) == (True, 0)
    announcement.close()


@pytest.mark.parametrize("call", ["listdir", "rename"])
def test_a_folder_that_is_removed_while_a_topic_is_announced_is_made_again(
    folder: TopicFolder, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    usual, left = getattr(os, call), 1

    def remove_and_call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            shutil.rmtree(folder.path)
        return usual(*arguments, **keywords)

    folder.path.mkdir(0o700, parents=True)
    monkeypatch.setattr(os, call, remove_and_call)
    announcement = announce(folder, "a")
    assert (announcement.is_there(), left) == (True, 0)
    announcement.close()


def test_the_error_about_a_folder_that_cannot_be_one_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TOPICS", "/")
    with pytest.raises(TopicError, match="the folder of topics cannot be '/'"):
        TopicFolder()


def test_what_else_is_in_the_folder_harms_nobody(folder: TopicFolder) -> None:
    announcement = announce(folder, "a")
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened = os.open(folder.path, os.O_DIRECTORY)
    stream.bind(f"/proc/self/fd/{opened}/a@1-1")
    stream.listen()
    os.close(opened)
    (folder.path / "a@2-1").mkdir()
    (folder.path / "a@3-1").touch()
    (folder.path / "a@4-1").symlink_to("a@4-1")
    for odd in ("@1-1", "\x1b[2J@1-1", "a b@1-1", "a@-", "a@1-", "a@x-1", f".a@1-{'9' * 40}", ".a@1-", "-"):
        (folder.path / odd).touch()
    os.mkdir(folder.path / ".a@1-4194304")  # that is no process
    assert {each.topic for each in folder.publishers()} == {"a"}
    assert [each.place for each in folder.publishers() if folder.is_alive(each)] == [announcement.name]
    assert "a@3-1" not in names(folder)
    for each in folder.publishers():
        if each.place != announcement.name:
            with pytest.raises(LinkError):
                folder.connect(each, Purpose("topic", "a"))
    announce(folder, "b").close()
    announcement.close()
    stream.close()


def test_a_publisher_does_not_remove_what_took_the_place_of_its_socket(folder: TopicFolder) -> None:
    announcement = announce(folder, "a")
    (folder.path / announcement.name).unlink()
    assert not announcement.is_there()
    (folder.path / announcement.name).touch()
    announcement.close()
    assert names(folder) == [announcement.name]


def is_readable(watch: object) -> bool:
    return bool(select.select([watch], [], [], 0)[0])


def test_a_folder_holds_nothing_open(folder: TopicFolder) -> None:
    folder.publishers()
    before = open_files()
    for _ in range(3):
        announcement = announce(folder, "a")
        assert folder.is_alive(max(folder.publishers("a")))
        folder.watch("a").close()
        announcement.close()
        abandon(folder, "a")
        with pytest.raises(PublisherGone):
            folder.connect(max(folder.publishers("a")), Purpose("topic", "a"))
    assert not open_files() - before


def test_the_longest_name_fits_in_a_process_with_many_files(
    folder: TopicFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1 << 22)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < 1000:
            opened.append(os.open("/dev/null", os.O_RDONLY))
        announce(folder, "a" * 56).close()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("path", ["/", "/proc/topics", "/proc/none/topics"])
def test_a_folder_that_cannot_be_made_is_named(path: str) -> None:
    with pytest.raises(TopicError, match=rf"folder of topics .*'{path}.*set HEADRACE_TOPICS"):
        TopicFolder(path).publishers()
