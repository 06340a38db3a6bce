"""The page about an examination: per file its cases, and why those fail that do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from flux_trio import __version__
from tests.real.examiner.comparing import Results, counts, share

PAGE: Final = Path(__file__).parents[3] / "docs" / "how-we-know" / "flux-core-tests.md"
KINDS: Final = {
    "ours": "flux-trio lacks it",
    "departure": "flux-trio does it otherwise, with a reason",
    "broker": "asked of flux-core's broker alone",
}
"""The three kinds of a case that fails, as `reasons.toml` has them."""
HEAD: Final = """# flux-core's own tests

`make real-tests` lets flux-core's test scripts (`t/*.t`, unmodified) examine flux-trio: their
`flux start` starts an instance of flux-trio in the edition *current*, and all other programs are
flux-core's. Cases are counted, not files. Each script is played three times:

- in an instance of flux-core. A case that fails or is skipped there is *not here*: the machine of
  the run lacks something, and nothing is learned from it.
- with no instance at all, as a control. What passes there *needs none*, and does not count.
- in an instance of flux-trio. `ARGS=--ours` plays it there alone: what counts stays as it was.

*Exempt* is only what loads a shared library or calls `flux exec`, with what depends on that
(`tests/real/examiner/exempt.toml`); the list was written before the first run. What remains counts.
`tests/real/examiner/results.toml` has the result of each case, and may only improve.
"""


def page(
    results: Results,
    exempt: Mapping[str, Mapping[str, str]],
    reasons: Mapping[str, Mapping[str, Any]],
    version: str,
    played: Collection[str],
) -> str:
    """Return the page about the results, with the versions of `flux version` and the date.

    The scripts in `played` were played just now, the others before.
    """
    core = dict(line.split(":", 1) for line in version.splitlines() if ":" in line)
    passes, counted = share(results)
    return "\n".join(
        [
            HEAD,
            f"These results are of {datetime.now(UTC):%Y-%m-%d}, with flux-trio {__version__}"
            f" and flux-core {core['commands'].strip()}: **{passes} of {counted} cases that count"
            f" pass, {100 * passes / counted:.1f} %**. A case that takes longer than its script"
            f" allows fails, so a busy machine passes fewer.{_older(results, played)}",
            "",
            *_table(results),
            "",
            "## Why cases fail",
            "",
            *_kinds(results, reasons),
            "",
            *_reasons(results, reasons),
            "",
            "## What is exempt",
            "",
            *(
                f"- {file}: `{case}`: {reason}"
                for file, cases in exempt.items()
                for case, reason in cases.items()
            ),
            "",
        ]
    )


def _older(results: Results, played: Collection[str]) -> str:
    """Say which results are of earlier runs."""
    older = [f"`{name}`" for name in results if name not in played]
    if not older:
        return ""
    return f" The results of these scripts are of an earlier run: {', '.join(older)}."


def _table(results: Results) -> Iterator[str]:
    yield "| script | cases | not here | need none | exempt | count | pass |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, cases in [*results.items(), ("all", _all(results))]:
        found = counts(cases)
        counted = found["passes"] + found["fails"]
        columns = [found["not here"], found["needs none"], found["exempt"], counted]
        yield f"| {name} | {len(cases)} | {' | '.join(map(str, columns))} | {found['passes']} |"


def _all(results: Results) -> dict[str, Any]:
    return {f"{file}: {case}": it for file, cases in results.items() for case, it in cases.items()}


def _kinds(results: Results, reasons: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    kinds = Counter(
        reasons.get(file, {}).get(case, {}).get("kind", "not looked into")
        for file, cases in results.items()
        for case, result in cases.items()
        if result == "fails"
    )
    yield "| why | cases |"
    yield "|---|--:|"
    for kind, count in sorted(kinds.items()):
        yield f"| {KINDS.get(kind, kind)} | {count} |"


def _reasons(results: Results, reasons: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for file, cases in results.items():
        for case, result in cases.items():
            if result == "fails" and (why := reasons.get(file, {}).get(case)) is not None:
                yield f"- {file}: `{case}`: {KINDS[why['kind']]}: {why['reason']}."
