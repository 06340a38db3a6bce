"""The table of flux-core's keys for the page on configuration; see `make_samples`."""

from __future__ import annotations

from flux_trio.config.documented import DOCUMENTED, Ignored, Meaning, Refused


def markdown() -> str:
    """Return each key that flux-core documents, with what it means here."""
    rows = ["| key | here |", "|---|---|"]
    for path, meaning in DOCUMENTED.items():
        name = path if "." in path else f"[{path}]"
        rows.append(f"| `{name.replace('*', 'NAME')}` | {_words(meaning)} |")
    return "\n".join(rows)


def _words(meaning: Meaning) -> str:
    match meaning:
        case Ignored(why, keys):
            within = f"; in it {', '.join(f'`{key}`' for key in keys)}" if keys else ""
            return f"ignored: {why}{within}"
        case Refused(why):
            return f"refused; expected {why}"
        case _:
            return "used"
