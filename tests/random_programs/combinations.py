"""The page of combinations: for each pair of features, that they work together, or the error that refuses them.

``python -m tests.random_programs.combinations`` writes it. A pair that the generator makes at random works: the
page has the number of programs among the first seeds that have it, which the suite compares with the model. Any
other pair is tried: one operator is given both, and a program is refused, or the model agrees with all of them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

from headrace.core.errors import GraphError, ParameterError
from tests.random_programs.making import CHANCES, RUN_CHANCES, make
from tests.random_programs.model import faults
from tests.random_programs.pairs import REFUSED, WORKS, Program
from tests.random_programs.parts import cut
from tests.random_programs.processes import with_process_replicas
from tests.random_programs.program import (
    features_of_run,
    features_of_stage,
    on_device,
    pairs_of,
    with_calls,
    with_plan,
    with_replay,
    with_segment,
)
from tests.random_programs.running import run_program

PAGE = Path(__file__).with_name("combinations.md")
OF_STAGE = (*CHANCES, "feed", "results")
# Ways to run a program in which nearly any can be run, whatever its operators have.
WAYS = {
    "replicas in processes": with_process_replicas,
    "frames on streams": on_device,
    "captured segment": with_segment,
    "parts": cut,
    "slice": on_device,
    "request and reply": with_calls,
    "replay": with_replay,
    "plan": with_plan,
}
FEATURES = (*OF_STAGE, *RUN_CHANCES, *WAYS)
SEEDS = 2000
TRIED = 4
HEAD = """# Combinations

`python -m tests.random_programs.combinations` writes this page, and a test fails if it is out of date. A program
combines two features if one operator has both, or if the run has one of them and an operator or the run the other.
A number says how many of the first {seeds} random programs combine the two; `tests/random_programs/model.py` says
what they do; the suite runs the first of them, and `make test-thorough` more. Replicas in processes and captured
segments are of other operators than the one with the feature. Parts run side by side in one process, and the model
says what their flows carry. In a replay, the sources are played. The other pairs were tried one by one:

- `+`: made to have both, they do what the model says.
- `*`: they work, tested by `tests/random_programs/test_pairs.py`.
- `=`: they are two kinds of one thing, of which an operator, an input or a run has one.
- a letter: refused with the error below, which a test compares; or tested elsewhere.
"""
# Two kinds of one thing.
KINDS = (
    {"generator", "async function", "feed", "results"},
    {"POP", "REJECT", "LATEST"},
    {"join by time", "window"},
    {"skip", "restart"},
    {"event-based scheduler", "default scheduler"},
    {"several flows, several queues", "several flows, one queue", "batch"},
    {"real time", "frames on streams"},  # the time of the device
    {"real time", "captured segment"},
    {"real time", "slice"},
    {"real time", "plan"},
)
ELSEWHERE = {
    frozenset({"recording", "frames on streams"}): (
        "tests/gpu/test_recorded_frames.py",
        "test_a_recording_has_each_frame_as_it_was_emitted_and_plays_it",
    ),
    frozenset({"recording", "captured segment"}): (
        "tests/observe/recordings/test_segment_data.py",
        "test_a_recording_has_all_messages_at_the_border",
    ),
    frozenset({"plan", "frames on streams"}): (
        "tests/random_programs/test_programs.py",
        "test_a_program_with_a_plan_does_what_the_model_says_on_no_other_sms",
    ),
    frozenset({"replay", "recording"}): (
        "tests/observe/recordings/test_replay.py",
        "test_a_replay_that_is_recorded_gives_the_same_file",
    ),
    frozenset({"replay", "frames on streams"}): (
        "tests/observe/recordings/test_replay.py",
        "test_frames_of_a_device_are_played_on_the_device",
    ),
    frozenset({"replay", "captured segment"}): (
        "tests/observe/recordings/test_segment_data.py",
        "test_a_segment_is_captured_when_its_sources_are_played",
    ),
    frozenset({"replay", "parts"}): (
        "tests/parts/test_driver.py",
        "test_each_process_plays_the_operators_of_its_fragment",
    ),
    frozenset({"slice", "frames on streams"}): (
        "tests/random_programs/test_programs.py",
        "test_a_program_on_slices_does_what_the_model_says_on_no_other_sms",
    ),
    frozenset({"slice", "captured segment"}): (
        "tests/gpu/test_segment_resources.py",
        "test_members_stay_on_their_slices",
    ),
    frozenset({"frames on streams", "captured segment"}): (
        "tests/random_programs/test_captured_frames.py",
        "test_captured_frames_beside_plain_ones_are_right",
    ),
    **{
        frozenset({"request and reply", way}): ("tests/operators/test_calls.py", test)
        for way, test in {
            "frames on streams": "test_answers_on_a_device_keep_their_order_and_their_memory",
            "captured segment": "test_a_captured_segment_passes_calls_on",
            "replicas in processes": "test_replicas_on_processes_answer_calls",
        }.items()
    },
    **{
        frozenset({"parts", feature}): (f"tests/parts/{path}", test)
        for feature, path, test in (
            ("order", "test_cut.py", "test_computes_are_ordered_across_parts"),
            ("chosen flows", "test_cut.py", "test_a_flow_to_another_part_is_chosen_as_in_one_process"),
            (
                "changes",
                "test_cut.py",
                "test_the_graph_of_a_part_follows_changes_and_does_not_cross_the_cut",
            ),
            ("stop", "test_cut.py", "test_a_stop_of_one_part_stops_the_others"),
            (
                "max_messages",
                "test_cut.py",
                "test_a_limit_on_the_messages_of_sources_is_not_one_on_links",
            ),
            ("recording", "test_cut.py", "test_each_part_records_its_own_operators"),
            (
                "running()",
                "test_driver.py",
                "test_a_run_in_processes_that_is_drained_computes_what_is_under_way",
            ),
            *(
                (
                    feature,
                    "test_driver.py",
                    "test_values_that_the_driver_sets_reach_the_part_and_are_answered",
                )
                for feature in ("pause and step", "live parameter")
            ),
            (
                "tracking",
                "test_joined_run.py",
                "test_random_programs_have_the_same_paths_as_in_one_process",
            ),
            *(
                (feature, "test_shapes.py", "test_frames_of_a_device_a_segment_replicas_and_a_logger")
                for feature in ("frames on streams", "captured segment")
            ),
        )
    },
}
"""What a test of another file combines: the file, and the test."""


def counted() -> Counter[frozenset[str]]:
    """Return how many of the first programs have each pair."""
    counts: Counter[frozenset[str]] = Counter()
    for seed in range(SEEDS):
        program = make(seed)
        counts.update(pairs_of(program))
        for way, change in WAYS.items():
            if (other := change(program)) is not None:
                found = features_of_run(other).union(
                    *(features_of_stage(other, each) for each in other.stages)
                )
                counts.update(frozenset({way, name}) for name in found - {way})
    return counts


def tried(one: str, other: str) -> str:
    """Return what happens if one operator, or an operator and its run, have two features."""
    pair = {one, other}
    if pair in map(set, WORKS):
        return "*"
    if frozenset(pair) in ELSEWHERE:
        path, test = ELSEWHERE[frozenset(pair)]
        return f"tested by `{test}` of `{path}`"
    for refused, program in REFUSED.items():
        if pair == set(refused):
            return _error_of(program)
    of_stage, of_run = pair & set(OF_STAGE), pair & set(RUN_CHANCES)
    found = ""
    for seed in range(TRIED):
        program = make(seed, of_stage, of_run, is_strict=False)
        if frozenset(pair) not in pairs_of(program):
            continue
        if "timeout" in pair:  # it computes as long as anything is under way
            program.duration, program.block = 500, ""
        try:
            wrong = faults(program, run_program(program))
            assert not wrong, f"{one} and {other}: {wrong}; write a program of the two (pairs.py)"
        except (GraphError, ParameterError, TypeError, ValueError) as error:
            return general(str(error))
        found = "+"
    assert found, f"{one} and {other}: the generator makes none; write a program of the two (pairs.py)"
    return found


def _error_of(program: Program) -> str:
    """Return the error of a program that is refused."""
    try:
        program()
    except (GraphError, ParameterError, TypeError) as error:
        return general(str(error))
    raise AssertionError("it is not refused any more")


@cache
def tried_errors() -> dict[frozenset[str], str]:
    """Return the error that the page has for each pair that is refused."""
    text = PAGE.read_text()
    errors = dict(re.findall(r"^- `(\w+)`: (.+)$", text.partition("| --- |")[2], re.MULTILINE))
    return {pair: errors[cell] for pair, cell in cells().items() if cell in errors}


def cells() -> dict[frozenset[str], str]:
    """Return what the page says of each pair."""
    lines = re.findall(r"^\| \d+\. ([^|]+?) \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert tuple(name for name, _ in lines) == FEATURES, (
        "write it: python -m tests.random_programs.combinations"
    )
    return {
        frozenset({name, other}): cell.strip()
        for place, (name, text) in enumerate(lines)
        for other, cell in zip(FEATURES[:place], text.split("|"), strict=False)
    }


def general(error: str) -> str:
    """Return the first line of an error, without what only its program has."""
    error = error.partition("\n")[0]
    error = re.sub(r"'(?:[gh]\.)?(?:s|new)\d+(\[\w+\])?'", "'…'", error)
    return re.sub(r"'(?:a|b|c|message|out|failed|back)'", "'…'", error)


def results() -> Iterator[tuple[str, str, str]]:
    """Yield each pair and what is known of it."""
    counts = counted()
    for one, other in combinations(FEATURES, 2):
        count = counts[frozenset({one, other})]
        if count:
            yield one, other, str(count)
        elif any({one, other} <= kinds for kinds in KINDS):
            yield one, other, "="
        else:
            yield one, other, tried(one, other)


def page() -> str:
    """Return the page."""
    logging.disable(logging.CRITICAL)
    try:
        found = {frozenset({one, other}): result for one, other, result in results()}
    finally:
        logging.disable(logging.NOTSET)
    letters: dict[str, str] = {}
    for result in found.values():
        if not result.isdigit() and result not in ("+", "=", "*"):
            letters.setdefault(result, _letter(len(letters)))
    numbered = [f"{number}. {name}" for number, name in enumerate(FEATURES, 1)]
    lines = [
        HEAD.format(seeds=SEEDS),
        f"| | {' | '.join(map(str, range(1, len(FEATURES))))} |",
        f"| --- |{' --- |' * (len(FEATURES) - 1)}",
    ]
    for place, name in enumerate(FEATURES[1:], 1):
        cells = [found[frozenset({name, other})] for other in FEATURES[:place]]
        shown = " | ".join(letters.get(cell, cell) for cell in cells)
        lines.append(f"| {numbered[place]} | {shown} |{' |' * (len(FEATURES) - 1 - place)}")
    lines.insert(3, f"| {numbered[0]} |{' |' * (len(FEATURES) - 1)}")
    lines += ["", *(f"- `{letter}`: {text}" for text, letter in letters.items())]
    return "\n".join(lines) + "\n"


def _letter(number: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[number] if number < 26 else f"a{_letter(number - 26)}"


if __name__ == "__main__":
    PAGE.write_text(page())
