"""`specdecode datastore`: build the text store that the drafter rest drafts from, and say what one holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .settings import MODEL, OUTPUT, flag

if TYPE_CHECKING:
    from ..datastore import Store

app = typer.Typer(help="Texts to draft from, for the drafter rest.")


@app.command()
def build(
    files: Annotated[list[str], typer.Argument(help="UTF-8 texts.", show_default=False)],
    out: Annotated[str, flag(OUTPUT, "The file to write.")],
    model: Annotated[str | None, flag(MODEL, "Whose tokenizer: folder, hub id or .gguf file.")] = None,
    as_json: Annotated[bool, flag(OUTPUT, "Print one JSON document and nothing else.", "--json")] = False,
) -> None:
    """Build a datastore of texts: their tokens, sorted by what stands before them.

    Serves every model of the same tokenizer. A million tokens take a few seconds; if interrupted, no file is left."""
    from ..datastore import Store, fingerprint, tokenise
    from ..errors import BadOption
    from ..models.loading import load_tokenizer
    from . import show

    if not out or "" in files:
        raise BadOption("a file's name is empty; give one")
    paths = [Path(file) for file in files]
    total = _sizes(paths)
    if Path(out).exists() and any(Path(out).samefile(path) for path in paths):
        raise BadOption(f"--out {out} is one of the texts, which would be lost; give another file")
    with show.busy("Loading the tokenizer"):
        tokenizer = load_tokenizer(model)
    with _progress(total) as advance:
        documents = list(tokenise(paths, tokenizer, advance))
    with show.busy("Sorting"):
        store = Store.of(documents, fingerprint(tokenizer))
        store.write(out)
    _tell(out, store, as_json)


@app.command()
def info(
    store: Annotated[str, typer.Argument(help="The file of a datastore.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check a datastore from end to end, and say what it holds."""
    from ..datastore import Store

    _tell(store, Store.open(store), as_json)


def _sizes(paths: list[Path]) -> int:
    """Bytes of all files. Raises BadInput before anything is read where one is missing."""
    from ..errors import BadInput

    for path in paths:
        if not path.is_file():
            raise BadInput(f"{path} is {'no file' if path.exists() else 'not there'}; give text files")
    return sum(path.stat().st_size for path in paths)


def _tell(path: str, store: Store, as_json: bool) -> None:
    from . import show

    told: dict[str, Any] = {"store": path, "bytes": Path(path).stat().st_size, **asdict(store.about)}
    if as_json:
        show.document(told)
        return
    print(
        f"{path}: {told['tokens']} tokens of {told['documents']} {told['kind']}, {told['bytes'] / 1e6:.1f} MB",
        flush=True,
    )
    print(f"tokenizer {told['tokenizer'] or 'unknown'}", flush=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal over the bytes that are tokenised."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from . import show

    columns = (TextColumn("Tokenising"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with show.progress(*columns) as progress:
        bar = progress.add_task("", total=total)
        yield lambda done: progress.advance(bar, done)
