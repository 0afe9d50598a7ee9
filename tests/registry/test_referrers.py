"""Documents attached to images: listed by tag in the distribution registry, or by the referrers API."""

import json

import pytest

from berth.common.errors import UserError
from berth.ecr.registry import referrers
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.manifest import OCI_INDEX, OCI_MANIFEST, Manifest, dumped
from tests.registry import made_images
from tests.registry.conftest import MakeClient
from tests.registry.fault_proxy import FaultProxy

BILL = json.dumps({"bomFormat": "CycloneDX", "components": []}).encode()


def attach_bill(client: Client, image: made_images.Image) -> str:
    """Attaches BILL; returns the digest of the artifact."""
    referrers.upload_blobs(client, "a/b", BILL)
    return referrers.attach(client, "a/b", image.manifest, BILL).digest


def attach_bill_like_another_tool(client: Client, image: made_images.Image) -> str:
    """Attaches BILL with other types and annotations, like another tool; returns the digest of the artifact."""
    referrers.upload_blobs(client, "a/b", BILL)
    bill = referrers.artifact(image.manifest.descriptor, BILL)
    other = {"artifactType": "text/plain", "annotations": {"org.example.made-by": "a test"}}
    made = Manifest(OCI_MANIFEST, dumped({**bill.parsed, **other}))
    referrers.put(client, "a/b", image.manifest.digest, made)
    return made.digest


def test_attached_document_is_found_and_read(client: Client) -> None:
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    assert referrers.attached(client, "a/b", image.manifest.digest) == []
    digest = attach_bill(client, image)
    (document,) = referrers.attached(client, "a/b", image.manifest.digest)
    assert (document.digest, document.artifact_type, document.media_type) == (digest, referrers.CYCLONEDX, OCI_MANIFEST)
    assert made_images.read_document(client, "a/b", document) == BILL


def test_artifact_has_ocis_form_and_leaves_the_image_unchanged(client: Client) -> None:
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    digest = attach_bill(client, image)
    made = client.manifest("a/b", digest)
    assert made is not None
    assert made.parsed["subject"] == {
        "mediaType": image.manifest.media_type,
        "digest": image.manifest.digest,
        "size": len(image.manifest.raw),
    }
    assert made.parsed["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    assert made.parsed["artifactType"] == "application/vnd.cyclonedx+json"
    index = client.manifest("a/b", image.manifest.digest.replace(":", "-"))
    assert index is not None
    assert index.media_type == OCI_INDEX
    assert [each["digest"] for each in index.parsed["manifests"]] == [digest]
    assert made_images.check(client, "a/b", "1", image) == image.manifest


def test_same_document_is_attached_once(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    first = attach_bill(client, image)
    tags = sorted(client.tags("a/b"))
    proxy.forget()
    assert attach_bill(client, image) == first
    assert [each.digest for each in referrers.attached(client, "a/b", image.manifest.digest)] == [first]
    assert proxy.uploaded() == 0
    second = attach_bill_like_another_tool(client, image)
    listed = referrers.attached(client, "a/b", image.manifest.digest)
    assert [(each.digest, each.artifact_type, each.annotations) for each in listed] == [
        (first, referrers.CYCLONEDX, {}),
        (second, "text/plain", {"org.example.made-by": "a test"}),
    ]
    assert sorted(client.tags("a/b")) == tags


def test_overwritten_entry_is_put_again(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    tag = image.manifest.digest.replace(":", "-")
    # The index is missing when it is read back for the first time.
    proxy.answer(404, method="GET", path=f"manifests/{tag}", skip=1)
    digest = attach_bill(client, image)
    assert proxy.count("PUT", f"manifests/{tag}") == 2
    assert [each.digest for each in referrers.attached(client, "a/b", image.manifest.digest)] == [digest]


def test_registry_with_referrers_api_gets_no_tag(proxy: FaultProxy, client_of: MakeClient) -> None:
    """The distribution registry has no such API before 3.0, so the proxy answers."""
    client = client_of(proxy)
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    made = referrers.artifact(image.manifest.descriptor, BILL)
    entry = {**made.descriptor.as_dict(), "artifactType": referrers.CYCLONEDX}
    body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}).encode()
    proxy.answer(200, path="referrers/", times=9, headers={"Content-Type": OCI_INDEX}, body=body)
    digest = attach_bill(client, image)
    assert digest == made.digest
    (document,) = referrers.attached(client, "a/b", image.manifest.digest)
    assert made_images.read_document(client, "a/b", document) == BILL
    assert client.tags("a/b") == ["1"]


def test_error_for_missing_document(client: Client) -> None:
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    missing = referrers.artifact(image.manifest.descriptor, BILL).descriptor
    with pytest.raises(UserError, match=f"lists {missing.digest} as attached, but does not have it: attach it again"):
        referrers.read_manifest(client, "a/b", missing)


def test_error_for_reserved_tag_that_is_not_an_index(client: Client) -> None:
    image = made_images.image()
    made_images.put(client, "a/b", image.manifest.digest.replace(":", "-"), image)
    with pytest.raises(UserError, match="is not an index of attached documents, for which that tag"):
        attach_bill(client, image)
