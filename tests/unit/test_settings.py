import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from anchorline.domain.byte_size import bytes_from
from anchorline.domain.errors import SettingsError
from anchorline.settings import ServeSettings, load


def write(directory: Path, text: str, name: str = "anchorline.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(flags: Mapping[str, object], directory: Path, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags, environ=environ, directory=directory)
    return str(caught.value)


def test_without_any_source_every_setting_has_its_default(tmp_path: Path) -> None:
    assert load({}, environ={}, directory=tmp_path) == ServeSettings()


def test_a_flag_goes_before_the_environment_that_before_the_file_that_before_the_default(
    tmp_path: Path,
) -> None:
    write(tmp_path, '[serve]\nport = 1\nhost = "file"\nslots = 3\n')
    environ = {"ANCHORLINE_PORT": "2", "ANCHORLINE_HOST": "environment"}

    settings = load({"port": "4"}, environ=environ, directory=tmp_path)

    assert (settings.port, settings.host, settings.slots) == (4, "environment", 3)
    assert settings.queue_max == ServeSettings().queue_max


def test_a_flag_that_was_not_given_leaves_the_other_sources_their_say(tmp_path: Path) -> None:
    settings = load({"port": None}, environ={"ANCHORLINE_PORT": "2"}, directory=tmp_path)
    assert settings.port == 2


def test_every_setting_can_come_from_the_environment(tmp_path: Path) -> None:
    texts = {
        "model": "m",
        "models_dir": "d",
        "device": "cuda:1",
        "dtype": "bfloat16",
        "arith": "auto",
        "host": "::1",
        "cache": "off",
        "cache_dir": "c",
        "log_level": "debug",
        "log_format": "json",
        "api_key": "k",
        "admin_key": "a",
        "body_bytes_max": "1MiB",
        "anchors_min": "9",
        "disk": "off",
        "verify": "strict",
        "window": "64",
        "disk_codec": "on",
        "ram_retention": "lru",
        "disk_read_back": "off",
    }
    names = [field.name for field in msgspec.structs.fields(ServeSettings)]
    environ = {f"ANCHORLINE_{name.upper()}": texts.get(name, "7") for name in names}

    settings = load({}, environ=environ, directory=tmp_path)

    assert not {
        name: getattr(settings, name)
        for name in names
        if getattr(settings, name) == getattr(ServeSettings(), name)
    }


def test_paths_know_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = load({"cache_dir": "~/kept"}, environ={}, directory=tmp_path)
    assert settings.cache_dir == tmp_path / "kept"


def test_models_are_kept_in_the_cache_directory_unless_told_otherwise(tmp_path: Path) -> None:
    kept = load({"cache_dir": "kept"}, environ={}, directory=tmp_path)
    told = load({"cache_dir": "kept", "models_dir": "told"}, environ={}, directory=tmp_path)
    assert kept.models_path == Path("kept/models")
    assert told.models_path == Path("told")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096),
        ("0", 0),
        ("2.5GiB", 2684354560),
        ("512 MB", 512_000_000),
        ("1kib", 1024),
        (" 1 b ", 1),
    ],
)
def test_sizes_are_read_with_their_units(text: str, number: int) -> None:
    assert bytes_from(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "1 parsec", "2,5GiB", "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number of bytes"):
        bytes_from(text)


def test_a_size_in_the_file_may_be_a_number_or_a_text(tmp_path: Path) -> None:
    write(tmp_path, '[serve]\nanchor_bytes_max = "1GiB"\nbody_bytes_max = 2048\n')
    settings = load({}, environ={}, directory=tmp_path)
    assert (settings.anchor_bytes_max, settings.body_bytes_max) == (1 << 30, 2048)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("port", "70000", "a whole number from 0 to 65535"),
        ("port", "", "a whole number from 0 to 65535"),
        ("port", "8000.5", "a whole number from 0 to 65535"),
        ("slots", "0", "a whole number from 1 to 256"),
        ("window", "null", "a whole number from 16 to 2147483648"),
        ("shutdown_s", "nan", "a number from 0 to 3600"),
        ("progress_interval_s", "inf", "a number from 0.01 to 60"),
        ("cache", "yes", "on or off"),
        ("dtype", "float16", "auto, float32 or bfloat16"),
        ("device", "cuda:", "auto, cpu, cuda, or one of several as cuda:1"),
        ("device", "cpu\n", "auto, cpu, cuda, or one of several as cuda:1"),
        ("model", "", "a text, not empty"),
        ("cache_dir", "", "a path, not empty"),
        ("body_bytes_max", "10", "a size as 512MiB or 2.5GiB, of at least 1024 bytes"),
        ("anchor_bytes_max", "-1", "a size as 512MiB or 2.5GiB, of at least 0 bytes"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name_source_and_what_is_allowed(
    name: str, value: str, allowed: str, tmp_path: Path
) -> None:
    flag = refusal({name: value}, tmp_path)
    variable = refusal({}, tmp_path, **{f"ANCHORLINE_{name.upper()}": value})
    assert flag == f"{name} is {value!r} on the command line; it must be {allowed}"
    assert variable == f"{name} is {value!r} in ANCHORLINE_{name.upper()}; it must be {allowed}"


@pytest.mark.parametrize(
    "line", ["port = true", 'host = ["a"]', "cache = true", "model = 5", "cache_dir = 1"]
)
def test_a_wrong_type_in_the_file_is_refused_and_the_file_named(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"[serve]\n{line}\n")
    message = refusal({}, tmp_path)
    assert message.startswith(line.split(" ", maxsplit=1)[0])
    assert f"in {path}" in message


def test_an_unknown_key_is_refused_and_the_nearest_known_one_named(tmp_path: Path) -> None:
    path = write(tmp_path, "[serve]\nmax-token-default = 5\n")
    message = refusal({}, tmp_path)
    assert "'max-token-default'" in message
    assert str(path) in message
    assert "the nearest is 'max_tokens_default'" in message


@pytest.mark.parametrize("text", ["port = 5\n", "[server]\nport = 5\n", "serve = 5\n"])
def test_settings_outside_of_their_table_are_refused(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    assert "settings stand in a table [serve]" in refusal({}, tmp_path)


def test_a_file_that_is_no_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    write(tmp_path, "[serve]\nport = \n")
    assert re.search(r"anchorline\.toml is not in the TOML format: .*line 2", refusal({}, tmp_path))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "anchorline.toml").mkdir()
    assert "cannot be read" in refusal({}, tmp_path)


def test_a_file_that_was_asked_for_is_read_in_place_of_the_usual_one(tmp_path: Path) -> None:
    write(tmp_path, "[serve]\nport = 1\nslots = 2\n")
    other = write(tmp_path, "[serve]\nport = 3\n", name="other.toml")
    settings = load({}, environ={}, config=other, directory=tmp_path)
    assert (settings.port, settings.slots) == (3, 1)


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(SettingsError, match="there is no configuration file"):
        load({}, environ={}, config=missing, directory=tmp_path)


def test_a_budget_whose_newest_anchors_are_all_it_keeps_is_refused(tmp_path: Path) -> None:
    message = refusal({"anchors_min": "4"}, tmp_path)
    assert message == ("anchors_min is 4 and anchors_newest 4; anchors_min must be the larger one")


def test_a_key_that_came_out_empty_is_refused_and_does_not_open_the_server(tmp_path: Path) -> None:
    assert "api_key" in refusal({}, tmp_path, ANCHORLINE_API_KEY="")


def test_a_key_that_spells_null_is_a_key(tmp_path: Path) -> None:
    assert load({"api_key": "null"}, environ={}, directory=tmp_path).api_key == "null"


def test_secrets_are_masked_wherever_settings_are_shown() -> None:
    settings = ServeSettings(api_key="hunter2", admin_key="swordfish")
    assert settings.shown()["api_key"] == "***"
    for shown in (repr(settings), str(settings), str(settings.__rich_repr__())):
        assert "hunter2" not in shown
        assert "swordfish" not in shown
        assert "'toy'" in shown
    assert ServeSettings().shown()["api_key"] is None


def test_a_secret_that_is_refused_is_not_repeated(tmp_path: Path) -> None:
    write(tmp_path, '[serve]\napi_key = ["hunter2"]\n')
    with pytest.raises(SettingsError) as caught:
        load({}, environ={}, directory=tmp_path)
    assert "api_key is not usable as given" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
