"""Which names and values are masked in logs, and which are not."""

import pytest

from berth.contract.masking import mask_text, masked, shown, sounds_secret

SECRET = """
    token tokens hub_token hf-tokens accessToken HF_TOKEN use_auth_token push_to_hub_token hftoken token2
    password passwords DB_PASSWORD dbPasswd passphrase passcode pass DB_PASS smtp-pass dbPass pwd MYSQL_PWD dbpwd
    secret secrets client_secret AWS_SECRET_ACCESS_KEY key keys api-key api-keys apikey apikeys WANDB_API_KEY APIKey
    accessKey private_key_id auth http_auth authorization Authorization proxy-authorization bearer bearer_header
    sig X-Amz-Signature cred creds credential credentials dsn SENTRY_DSN webhook slack_webhook_url webhooks cookie jwt
    sas_url
"""
HARMLESS = """
    per_device_train_batch_size signal author authors tokenizer_name tokenizer tokenizers max_tokens max_new_tokens
    num_tokens pad_token eos_token_id token_type_ids special_tokens monkey keep_best keyword keywords turkey design
    pass_through passthrough passes num_passes bypass compass credit assignment signed sigma significance authority
    learning_rate model_name_or_path output_dir seed secretary webhooked passage x 42
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_secret_names(name: str) -> None:
    assert sounds_secret(name)
    assert masked([f"--{name}", "abc"]) == [f"--{name}", "***"]
    assert masked([f"--{name}=abc"]) == [f"--{name}=***"]


@pytest.mark.parametrize("name", HARMLESS.split())
def test_harmless_names(name: str) -> None:
    assert not sounds_secret(name)
    assert masked([f"--{name}", "abc", f"--{name}=abc"]) == [f"--{name}", "abc", f"--{name}=abc"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("postgres://u:pw@h/db", "postgres://***@h/db"),
        ("https://u:p@ss@h:8080/a", "https://***@h:8080/a"),
        ("https://u:p/w@h/a", "https://***@h/a"),
        ("https://token@h/simple", "https://***@h/simple"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("https://h:8080/a@b", "https://h:8080/a@b"),
        ("git+https://github.com/x/y@v1", "git+https://github.com/x/y@v1"),
        ("https://h/blob?sv=1&sig=abc", "https://h/blob?sv=1&sig=***"),
        ("{'a': {'api_keys': ['x']}}", "{'a': {'api_keys':***"),
        ("A=1,HF_TOKEN=x,B=2", "A=1,HF_TOKEN=***"),
        ("me@example.com", "me@example.com"),
    ],
)
def test_secret_parts_of_values(value: str, expected: str) -> None:
    assert shown("--url", value) == expected


def test_values_of_mpirun_exports_are_masked() -> None:
    assert masked(["-x", "A=b", "--x", "HOME", "-y", "A=b"]) == ["-x", "A=***", "--x", "HOME", "-y", "A=b"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Looking in indexes: https://me:pw@index/simple", "Looking in indexes: https://***@index/simple"),
        ("curl -H 'Authorization: Bearer abcdefgh.1'", "curl -H 'Authorization: Bearer ***'"),
        ("GET /b?X-Amz-Signature=12ab&n=1 failed", "GET /b?X-Amz-Signature=***&n=1 failed"),
        ('{"password": "a b", "n": 1}', '{"password": ***, "n": 1}'),
        ("HF_TOKEN=hf_abc and more", "HF_TOKEN=*** and more"),
        ("KeyError: 'a' (raised at train.py:3)", "KeyError: 'a' (raised at train.py:3)"),
        (
            "json.decoder.JSONDecodeError: line 1 column 1 (char 0)",
            "json.decoder.JSONDecodeError: line 1 column 1 (char 0)",
        ),
        ("epoch=1 loss=0.5", "epoch=1 loss=0.5"),
    ],
)
def test_mask_text(line: str, expected: str) -> None:
    assert mask_text(line) == expected


@pytest.mark.slow
@pytest.mark.timeout(30)  # a regular expression with quadratic time would take hours
@pytest.mark.parametrize("word", ["a", "1", "-", "a=1 ", "'a' ", "bearer ", "://a:", "http://"])
def test_masking_time_is_linear(word: str) -> None:
    text = word * (200_000 // len(word))
    assert mask_text(text) == text
    assert masked(["--p", text]) == ["--p", text]
