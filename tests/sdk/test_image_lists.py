"""Which images a data set names, and errors that say where it does not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot import image_lists
from sandlot.image_lists import COLUMNS, BadImageList

names = st.from_regex(r"[a-z0-9]+(/[a-z0-9]+){0,2}(:[a-z0-9]+)?", fullmatch=True)
texts = st.text(max_size=200)


@given(images=st.lists(names, max_size=30), blank=st.lists(st.sampled_from(["", "  ", "# a comment"])))
def test_a_list_counts_each_line(images: list[str], blank: list[str]) -> None:
    text = "\n".join([*blank, *(f" {image}\t" for image in images), *blank])
    assert image_lists.parse_lines(text, name="list") == Counter(images)


@given(
    rows=st.lists(st.tuples(names, st.sampled_from(COLUMNS), texts), max_size=20),
    as_array=st.booleans(),
)
def test_rows_count_each_image_whatever_else_they_have(
    rows: list[tuple[str, str, str]], as_array: bool
) -> None:
    documents = [{"problem": text, column: image} for image, column, text in rows]
    text = (
        json.dumps(documents)
        if as_array
        else "\n".join(json.dumps(one, ensure_ascii=False) for one in documents)
    )
    assert image_lists.parse_rows(text, name="rows") == Counter(image for image, _, _ in rows)


@given(text=texts, column=st.none() | st.sampled_from(["image", "a.b"]))
def test_any_text_gives_images_or_an_error_with_the_name(text: str, column: str | None) -> None:
    for parse in (
        lambda: image_lists.parse_lines(text, name="data"),
        lambda: image_lists.parse_rows(text, name="data", column=column),
        lambda: image_lists.parse_task(text, name="data"),
    ):
        try:
            parse()
        except BadImageList as error:
            assert str(error).startswith("data")


@given(row=st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner)))
def test_a_row_that_is_no_object_is_named_by_its_line(row: object) -> None:
    text = f'{{"image": "a"}}\n{json.dumps(row)}'
    with pytest.raises(BadImageList, match=r"^data:2: a row must be an object, not "):
        image_lists.parse_rows(text, name="data")


def test_the_first_column_of_the_usual_ones_counts() -> None:
    row = '{"image": {"bytes": "…"}, "docker_image": null, "image_name": "named"}'
    assert image_lists.parse_rows(row, name="rows") == {"named": 1}


def test_a_column_may_be_inside_of_another() -> None:
    text = '{"extra": {"image": "inner"}, "image": "outer"}\n{"extra.image": "flat"}'
    assert image_lists.parse_rows(text, name="rows", column="extra.image") == {"inner": 1, "flat": 1}


def test_rows_of_swe_bench_have_the_image_that_it_publishes() -> None:
    row = {"instance_id": "Django__django-11099", "base_commit": "d26b", "repo": "django/django"}
    assert image_lists.parse_rows(json.dumps(row), name="rows") == {
        "swebench/sweb.eval.x86_64.django_1776_django-11099:latest": 1
    }


@pytest.mark.parametrize(
    ("text", "column", "error"),
    [
        ("{}", None, "data:1: no field image_name, docker_image or image"),
        ('\n{"image": "a"}\n{"image": 3}', None, "data:3: image: must be a string, not a number"),
        ('{"image": "a b"}', None, "data:1: image: must be the name of an image, not 'a b'"),
        ('{"image": " "}', None, "data:1: image: must be the name of an image, not ' '"),
        ('{"image": "a"}', "tag", "data:1: no field tag; the row has image"),
        ('{"x": {"y": null}}', "x.y", "data:1: x.y: must be a string, not null"),
        ('{"image": "a"', None, "data:1: not JSON: "),
        ('[{"image": "a"}, {"image": []}]', None, "data: row 2: image: must be a string, not a list"),
        ('[{"image": "a"}', None, "data: not JSON: "),
    ],
)
def test_an_error_names_line_and_field(text: str, column: str | None, error: str) -> None:
    with pytest.raises(BadImageList) as raised:
        image_lists.parse_rows(text, name="data", column=column)
    assert str(raised.value).startswith(error)


def test_a_line_with_two_images_is_an_error() -> None:
    with pytest.raises(BadImageList, match=r"^data:2: one image a line, not 'b c'"):
        image_lists.parse_lines("a\nb c\n", name="data")


def test_a_file_is_read_by_its_name_or_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("\ufeffone\ntwo\none\n")
    (tmp_path / "rows.jsonl").write_text('{"image": "one"}\n')
    (tmp_path / "rows.txt").write_text('{"image": "two"}\n')
    (tmp_path / "other").write_text('{"what": "three"}\n')
    assert image_lists.read(tmp_path / "plain.txt").counts == {"one": 2, "two": 1}
    assert image_lists.read(tmp_path / "rows.jsonl").counts == {"one": 1}
    assert image_lists.read(tmp_path / "rows.txt").counts == {"two": 1}
    assert image_lists.read(tmp_path / "other", column="what").counts == {"three": 1}


def test_a_file_without_images_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# none\n")
    with pytest.raises(BadImageList, match=r"empty: no image in it"):
        image_lists.read(tmp_path / "empty")
    (tmp_path / "binary").write_bytes(b"ab\xff")
    with pytest.raises(BadImageList, match=r"binary: not UTF-8 at byte 2"):
        image_lists.read(tmp_path / "binary")


def task(folder: Path, environment: str, *, dockerfile: bool = False) -> None:
    (folder / "environment").mkdir(parents=True)
    (folder / "task.toml").write_text(f'schema_version = "1.4"\n[environment]\n{environment}\n')
    if dockerfile:
        (folder / "environment" / "Dockerfile").write_text("FROM python:3.12\n")


def test_a_folder_of_harbor_tasks_names_200_images(tmp_path: Path) -> None:
    for number in range(200):
        task(
            tmp_path / f"task-{number}",
            f'docker_image = "registry.example.com/task:{number % 150}"\ncpus = 1',
        )
    found = image_lists.read(tmp_path)
    assert len(found.counts) == 150
    assert found.counts["registry.example.com/task:0"] == 2
    assert image_lists.read(tmp_path / "task-7").counts == {"registry.example.com/task:7": 1}


def test_tasks_that_would_have_to_be_built_are_told_apart(tmp_path: Path) -> None:
    task(tmp_path / "a", 'docker_image = "one"')
    task(tmp_path / "b", "cpus = 1", dockerfile=True)
    found = image_lists.read(tmp_path)
    assert (found.counts, found.without_image) == ({"one": 1}, (str(tmp_path / "b"),))
    with pytest.raises(BadImageList, match=r"none of the 1 tasks has environment\.docker_image"):
        image_lists.read(tmp_path / "b")


@pytest.mark.parametrize(
    ("environment", "error"),
    [
        ("cpus = 1", "environment.docker_image: missing, and there is no environment/Dockerfile"),
        ("docker_image = 3", "environment.docker_image: must be a string, not a number"),
        ("docker_image =", "not TOML: "),
    ],
)
def test_an_error_names_the_task_and_the_field(tmp_path: Path, environment: str, error: str) -> None:
    task(tmp_path / "a", environment)
    with pytest.raises(BadImageList) as raised:
        image_lists.read(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}/a/task.toml: {error}")


def test_a_folder_of_row_files_is_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"image": "one"}\n{"image": "two"}\n')
    (tmp_path / "test.json").write_text('[{"image": "one"}]')
    (tmp_path / "README.md").write_text("not a row")
    assert image_lists.read(tmp_path).counts == {"one": 2, "two": 1}


def test_a_folder_without_either_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadImageList, match=r"no task\.toml in it or below it"):
        image_lists.read(tmp_path)
