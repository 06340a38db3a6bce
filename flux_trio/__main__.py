"""`python -m flux_trio` is the `flux-trio` command."""

from flux_trio.cli import main

if __name__ == "__main__":
    main(prog_name="flux-trio")
