"""Datastores: what a search finds, the file and its damages, and how texts become documents of ids."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import TOKENIZER, byte_fallback, encode

from specdecode.datastore import LONGEST, SEPARATOR, Store, fingerprint, tokenise
from specdecode.datastore import texts as splitting
from specdecode.errors import BadInput, LoadError, WriteError

DOCUMENTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=40), min_size=1, max_size=4)


def backwards(documents: Sequence[Sequence[int]]) -> list[int]:
    """The whole text as a store holds it."""
    return [token for ids in documents for token in [*ids, SEPARATOR]][::-1]


class TestSearch:
    @given(DOCUMENTS)
    def test_places_are_sorted_by_what_stands_before_them(self, documents: list[list[int]]) -> None:
        text, array = backwards(documents), Store.of(documents).array
        assert array.tokens.tolist() == text[::-1]
        assert list(array.order) == sorted(range(len(text)), key=lambda at: (text[at : at + LONGEST], at))

    @given(DOCUMENTS, st.lists(st.integers(0, 3), min_size=1, max_size=24), st.integers(1, 3), st.integers(1, 9))
    def test_it_finds_what_brute_force_finds(
        self, documents: list[list[int]], context: list[int], least: int, enough: int
    ) -> None:
        """The longest match, then its halves as long as there are too few places; and what stands behind each."""
        text, array = backwards(documents), Store.of(documents).array
        newest_first = context[::-1][:LONGEST]

        def places(length: int) -> set[int]:
            return {at for at in range(len(text)) if text[at : at + length] == newest_first[:length]}

        longest = max((n for n in range(1, len(newest_first) + 1) if places(n)), default=0)
        found = array.matches(context, least, enough)
        assert [length for length, _ in found][:1] == ([longest] if longest >= least else [])
        for length, where in found:
            assert {array.order[i] for i in where} == places(length)
            for i, row in zip(where, array.after(where, 3), strict=True):
                at = array.order[i]
                assert row == [text[at - j] if j <= at else SEPARATOR for j in (1, 2, 3)]
        assert all(len(a) < min(enough, len(b)) for (_, a), (_, b) in pairwise(found))
        if found and len(found[-1][1]) < enough:
            assert len(places(least)) == len(found[-1][1]), "nothing shorter has more"

    def test_a_match_of_many_tokens_is_found_at_its_first_sixteen(self) -> None:
        document = list(range(100))
        ((length, where),) = Store.of([document]).array.matches(document[:60], 2, 1)
        assert (length, len(where)) == (LONGEST, 1)


@pytest.mark.parametrize("document", [5, [-1], [2**40], [2**70], [SEPARATOR], [1.5], ["a"], [[1], [2]], np.array([-1])])
def test_what_are_no_ids_is_refused(document: Any) -> None:
    with pytest.raises(BadInput, match="a document is a list of ids"):
        Store.of([[1, 2], document])


class TestTheFile:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        Store.of([[1, 2, 3, 1, 2], [70_000, 4]], "a tokenizer").write(tmp_path / "store")
        return tmp_path / "store"

    def test_it_comes_back_as_it_was(self, path: Path) -> None:
        store = Store.open(path)
        assert (store.about.tokenizer, store.about.documents, store.about.tokens) == ("a tokenizer", 2, 9)
        assert store.array.tokens.tolist() == [1, 2, 3, 1, 2, SEPARATOR, 70_000, 4, SEPARATOR]
        ((length, where),) = store.array.matches([1, 2], 2, 1)
        assert (length, sorted(row[0] for row in store.array.after(where, 1))) == (2, [3, SEPARATOR])

    def test_no_byte_may_change(self, path: Path) -> None:
        """Each byte, header and all: refused by name, in one line."""
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(LoadError) as caught:
                Store.open(path)
            assert "store" in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_no_byte_may_be_missing_or_too_many(self, path: Path) -> None:
        whole = path.read_bytes()
        for part in (*(whole[:n] for n in range(len(whole))), whole + b"\0"):
            path.write_bytes(part)
            with pytest.raises(LoadError, match=r"store (is no datastore|has)"):
                Store.open(path)

    @pytest.mark.parametrize("name", ["version", "byteorder"])
    def test_a_file_of_another_kind_says_so(self, path: Path, name: str) -> None:
        magic, header, rest = path.read_bytes().split(b"\n", 2)
        changed = json.dumps({**json.loads(header), name: "other"}).encode()
        path.write_bytes(b"\n".join((magic, changed, rest)))
        with pytest.raises(LoadError, match=r"is of version .* build it again"):
            Store.open(path)

    def test_what_is_no_file_is_refused(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "absent"):
            with pytest.raises(LoadError, match="cannot read datastore"):
                Store.open(path)

    def test_an_interrupted_write_leaves_the_old_file_alone(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = path.read_bytes()

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("specdecode.datastore.store.os.replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Store.of([[5] * 100]).write(path)
        assert [file.name for file in path.parent.iterdir()] == ["store"]
        assert path.read_bytes() == before

    def test_a_place_that_cannot_be_written(self, path: Path) -> None:
        for wrong in (path / "inside", path.parent):
            with pytest.raises(WriteError, match="cannot write"):
                Store.of([[1]]).write(wrong)
        assert [file.name for file in path.parent.iterdir()] == ["store"]

    @pytest.mark.parametrize("documents", [[], [[]], [[], []]])
    def test_nothing_is_no_store(self, documents: list[list[int]]) -> None:
        with pytest.raises(BadInput, match="these documents have 0"):
            Store.of(documents)


class TestTexts:
    def test_files_become_documents_in_order(self, tmp_path: Path) -> None:
        texts = ["the END\n\nab", "", "漢字 é"]
        paths = [tmp_path / str(i) for i in range(3)]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        done: list[int] = []
        documents = list(tokenise(paths, TOKENIZER, done.append))
        assert [ids.tolist() for ids in documents] == [encode(TOKENIZER, text) for text in texts]
        assert {ids.dtype for ids in documents} == {np.dtype(np.uint32)}
        assert sum(done) == sum(path.stat().st_size for path in paths)

    def test_long_texts_are_cut_at_line_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is lost, whatever the lines."""
        monkeypatch.setattr(splitting, "PIECE", 10)
        monkeypatch.setattr(splitting, "PIECES", 3)
        rng = random.Random(0)
        for text in ("a" * 95, "ab\n" * 33, "\n" * 21, "".join(rng.choices("ab \n", k=200))):
            (tmp_path / "text").write_text(text)
            (ids,) = tokenise([tmp_path / "text"], TOKENIZER)
            assert TOKENIZER.decode(ids.tolist()) == text

    def test_what_is_no_text_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "binary").write_bytes(b"ok \xff\xfe")
        with pytest.raises(BadInput, match=r"binary is no UTF-8 text \(byte 3\)"):
            list(tokenise([tmp_path / "binary"], TOKENIZER))
        with pytest.raises(BadInput, match=r"cannot read .*absent"):
            list(tokenise([tmp_path / "absent"], TOKENIZER))

    def test_fingerprints_tell_vocabularies_apart(self) -> None:
        assert fingerprint(TOKENIZER) == fingerprint(TOKENIZER)
        assert fingerprint(TOKENIZER) != fingerprint(byte_fallback())
