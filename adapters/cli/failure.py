"""How a command fails: in one line, with an exit code."""

import click


class Failure(click.ClickException):
    """A failure that is shown as one line."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        """Write the line to standard error."""
        del file
        click.echo(f"anchorline: {self.message}", err=True)


class UsageFailure(Failure):
    """The same, where whoever gave the command can mend it."""

    exit_code = 2
