"""Mistakes that are planted in a copy of the program: does `flux-trio fuzz` see them?

Each entry of a file `*.toml` is one small, plausible mistake. None is removed or changed because a
fuzzer does not find it. `docs/how-we-know/mistakes.md` says how they are tried.
"""
