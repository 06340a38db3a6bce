"""flux-core's own tests examine flux-trio.

Each file of `files.txt` is a sharness script of flux-core's `t/`. It is played in three settings:
in an instance of flux-core (`core`), with no instance at all (`none`), and in an instance of
flux-trio (`ours`). What is counted are cases. A case counts if flux-core passes it here and if it
does not pass without any instance; `exempt.toml` names the cases that are exempt, with reasons.

`tap` reads what a script prints, `playing` plays it, `starting` is its `flux start`, `comparing`
judges, and `page` tells. `results.toml` has the outcome of each case, which may only improve;
`reasons.toml` has the reason of each case that fails.
"""
