"""The door of the command line: Ctrl-C ends it quietly also while its modules are still being imported."""


def main() -> None:
    """Run a command; what its exit codes mean is said in butlers/cli/app.py. 130 after Ctrl-C."""
    try:
        from butlers.cli.app import run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
