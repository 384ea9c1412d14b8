"""The entry to the command line: Ctrl-C ends it quietly, even while its modules are being imported."""


def main() -> None:
    """Run a command; its exit codes are explained in butlers/cli/app.py. Exit with 130 after Ctrl-C."""
    try:
        from butlers.cli.app import run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
