"""uv's proofs that there is no solution, as uv 0.13 writes them, as one sentence each."""

import pytest

from berth.images.no_solution import explained

NO = "error: No solution found when resolving dependencies\n  cause: "
END = "we can conclude that your requirements are unsatisfiable.\n"


@pytest.mark.parametrize(
    ("uv_says", "expected"),
    [
        pytest.param(
            f"{NO}"
            "Because datasets>=5.2.0 depends on huggingface-hub>=1.31.0,<3.0 and transformers==4.26.0 "
            "depends on huggingface-hub>=0.11.0,<1.0, we can conclude that datasets>=5.2.0 and "
            "transformers==4.26.0 are incompatible.\n"
            "          And because lock depends on transformers==4.26.0 and datasets==5.2.0, we can "
            "conclude that your requirements are unsatisfiable.\n",
            "datasets 5.2.0 wants huggingface-hub <3.0,>=1.31.0, and transformers 4.26.0 wants "
            "huggingface-hub <1.0,>=0.11.0: choose another version of one of them",
            id="shared",
        ),
        pytest.param(
            f"{NO}"
            "Because peft==0.15.2 depends on accelerate>=0.21.0 and lock depends on peft==0.15.2, we "
            "can conclude that lock depends on accelerate>=0.21.0.\n"
            "          And because lock depends on accelerate==0.16.0, we can conclude that your "
            "requirements are unsatisfiable.\n",
            "peft 0.15.2 wants accelerate >=0.21.0, and accelerate==0.16.0 is asked for: choose another "
            "version of one of them",
            id="transitive",
        ),
        pytest.param(
            f"{NO}"
            "Because datasets>=5.2.0 depends on pyarrow>=24.0.0 and pyarrow<19, we can conclude that "
            "datasets>=5.2.0 cannot be used.\n"
            "          And because lock depends on datasets==5.2.0, we can conclude that your "
            "requirements are unsatisfiable.\n",
            "datasets 5.2.0 wants pyarrow >=24.0.0, and pyarrow<19 is asked for: choose another version of one of them",
            id="constraint2",
        ),
        pytest.param(
            f"{NO}"
            "Because lock depends on numpy==2.4.0 and numpy<2, we can conclude that your requirements "
            "are unsatisfiable.\n",
            "numpy==2.4.0 is asked for, and numpy<2 is asked for: choose another version of one of them",
            id="constraint",
        ),
        pytest.param(
            f"{NO}"
            "Because torch==2.6.0 depends on nvidia-cudnn-cu12{platform_machine == 'x86_64' and "
            "sys_platform == 'linux'}==9.1.0.70 and lock depends on torch==2.6.0, we can conclude "
            "that lock depends on nvidia-cudnn-cu12==9.1.0.70.\n"
            "          And because lock depends on nvidia-cudnn-cu12==9.20.0.*, we can conclude that "
            "your requirements are unsatisfiable.\n",
            "torch 2.6.0 wants nvidia-cudnn-cu12 ==9.1.0.70, and nvidia-cudnn-cu12==9.20.0.* is asked "
            "for: choose another version of one of them",
            id="cudarow",
        ),
        pytest.param(
            f"{NO}"
            "Because transformers>=4.40.0,<=4.41.2 depends on tokenizers>=0.19,<0.20 and lock depends "
            "on transformers>=4.40,<4.42, we can conclude that lock depends on "
            "tokenizers>=0.19,<0.20.\n"
            "          And because lock depends on tokenizers>=0.20, we can conclude that your "
            "requirements are unsatisfiable.\n",
            "transformers >=4.40.0,<=4.41.2 wants tokenizers <0.20,>=0.19, and tokenizers>=0.20 is "
            "asked for: choose another version of one of them",
            id="ranges",
        ),
        pytest.param(
            f"{NO}"
            "Because there is no version of transformers==4.99.0 and lock depends on "
            "transformers==4.99.0, we can conclude that your requirements are unsatisfiable.\n",
            "there is no version of transformers==4.99.0: choose one that was released",
            id="never",
        ),
        pytest.param(
            f"{NO}"
            "Because no-such-thing was not found in the package registry and lock depends on "
            "no-such-thing==1, we can conclude that your requirements are unsatisfiable.\n",
            "the package index has no package no-such-thing: look at how it is spelt",
            id="unknown",
        ),
        pytest.param(
            f"{NO}"
            "Because torch==1.12.1 has no wheels with a matching Python ABI tag (e.g., `cp311`) and "
            "lock depends on torch==1.12.1, we can conclude that your requirements are "
            "unsatisfiable.\n"
            "\n"
            "hint: You require CPython 3.11 (`cp311`), but we only found wheels for `torch` (v1.12.1) "
            "with the following Python ABI tags: `cp37m`, `cp38`, `cp39`, `cp310`\n",
            "torch 1.12.1 has no wheel for this Python (there are cp37m, cp38, cp39, cp310), and images install wheels "
            "alone: choose another version, or do without it",
            id="nowheel",
        ),
        pytest.param(
            f"{NO}"
            "Because tokenizers==0.9.4 has no usable wheels and transformers==4.2.0 depends on "
            "tokenizers==0.9.4, we can conclude that transformers==4.2.0 cannot be used.\n"
            "          And because lock depends on transformers==4.2.0, we can conclude that your "
            "requirements are unsatisfiable.\n"
            "\n"
            "hint: Wheels are required for `tokenizers` because building from source is disabled for "
            "all packages (i.e., with `--no-build`)\n",
            "tokenizers 0.9.4 has no wheel for this Python, and images install wheels alone; transformers 4.2.0 "
            "wants it: choose another version of one of them",
            id="tok",
        ),
        pytest.param(
            f"{NO}"
            "Because antlr4-python3-runtime>=4.9,<=4.9.3 has no usable wheels and only the following versions of "
            "antlr4-python3-runtime are available:\n"
            "             antlr4-python3-runtime<4.9.dev0\n"
            "             antlr4-python3-runtime>=4.9,<=4.9.3\n"
            "         we can conclude that antlr4-python3-runtime==4.9.* cannot be used.\n"
            "         And because hydra-core==1.3.2 depends on antlr4-python3-runtime==4.9.* and lock depends on "
            "hydra-core==1.3.2, we can conclude that your requirements are unsatisfiable.\n",
            "antlr4-python3-runtime >=4.9,<=4.9.3 has no wheel for this Python, and images install wheels alone; "
            "hydra-core 1.3.2 wants it: choose another version of one of them",
            id="source",
        ),
        pytest.param(
            f"{NO}"
            "Because all versions of sagemaker-training have no usable wheels and lock depends on "
            "sagemaker-training, we can conclude that your requirements are unsatisfiable.\n",
            "sagemaker-training in any version has no wheel for this Python, and images install wheels alone: "
            "choose another version, or do without it",
            id="source2",
        ),
        pytest.param(
            f"{NO}"
            "Because there is no version of transformers==4.46.3 and lock depends on "
            "transformers==4.46.3, we can conclude that your requirements are unsatisfiable.\n"
            "\n"
            "hint: `transformers` was filtered by `exclude-newer` to only include packages uploaded "
            "before 2024-01-02T00:00:00Z. The requested version, v4.46.3, was published at "
            "2024-11-18T22:12:57.024Z. Consider using `exclude-newer-package` to override the cutoff "
            "for this package.\n",
            "transformers==4.46.3 is asked for, and transformers 4.46.3 was uploaded on 2024-11-18, after the day as "
            "of which all is resolved: choose 2024-11-18 or a later day, or an older version",
            id="day",
        ),
        pytest.param(
            f"{NO}"
            "Because only numpy<=2.2.1 is available and xarray==2026.1 depends on numpy>=2.3, we can conclude that "
            "xarray==2026.1 cannot be used.\n"
            "         And because lock depends on xarray==2026.1, we can conclude that your requirements are "
            "unsatisfiable.\n"
            "\n"
            "hint: `numpy` was filtered by `exclude-newer` to only include packages uploaded before "
            "2025-01-02T00:00:00Z. The latest version satisfying the requirement is v2.5.5, published at "
            "2026-11-15T21:30:10Z. Consider using `exclude-newer-package` to override the cutoff for this package.\n",
            "xarray 2026.1 wants numpy >=2.3, and numpy 2.5.5 was uploaded on 2026-11-15, after the day as of which "
            "all is resolved: choose 2026-11-15 or a later day, or an older version",
            id="day2",
        ),
    ],
)
def test_the_two_that_collide_are_named(uv_says: str, expected: str) -> None:
    assert explained(uv_says) == expected


@pytest.mark.parametrize(
    ("uv_says", "expected"),
    [
        (
            "error: Failed to fetch: `https://index/simple/torch/`\n  cause: connection refused\n",
            "the index did not answer at https://index/simple/torch/ (connection refused): see whether this machine "
            "reaches it, and run the command again when it does",
        ),
        ("", "uv printed nothing"),
        (f"{NO}Because of the moon, we can conclude that all is lost.", "of the moon: all is lost"),
        (
            f"{NO}nothing that is known",
            "error: No solution found when resolving dependencies cause: nothing that is known",
        ),
    ],
)
def test_another_text_is_said_in_short(uv_says: str, expected: str) -> None:
    assert explained(uv_says) == expected


def test_uvs_frame_is_left_out() -> None:
    said = (
        "  × No solution found when resolving dependencies:\n  ╰─▶ Because b==1 depends on c<2 and lock "
        "depends on b==1,\n"
        f"      we can conclude that lock depends on c<2.\n      And because lock depends on c==2, {END}"
    )
    assert explained(said) == "b 1 wants c <2, and c==2 is asked for: choose another version of one of them"


def test_an_index_that_does_not_answer_is_named_without_its_password() -> None:
    said = explained(
        "error: Request failed after 3 retries in 10.4s\n"
        "  cause: Failed to fetch: https://me:secret@download.pytorch.org/whl/cpu/torch/\n"
        "  cause: error sending request for url (https://me:secret@download.pytorch.org/whl/cpu/torch/)\n"
        "  cause: dns error\n"
        "  cause: failed to lookup address information: Name or service not known\n"
    )
    assert said.startswith("the index did not answer at https://")
    assert (
        "download.pytorch.org/whl/cpu/torch/ (failed to lookup address information: Name or service not known)" in said
    )
    assert "secret" not in said
