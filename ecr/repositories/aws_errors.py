"""AWS's errors, and boto3's own, as sentences that say what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from berth.common.errors import UserError
from berth.common.http import in_few_words, without_password

ATTEMPTS = 6
"""Attempts per call if AWS throttles it, fails, or can't be reached."""
NO_REGION = "no AWS region is set: give --region, set AWS_REGION, or write a region into your profile."
NO_CREDENTIALS = (
    "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with "
    "`aws sso login`."
)
_NOT_AWS = "the answer to {} is not from AWS: check AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_* and HTTPS_PROXY."

_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_NOT_ACCEPTED = (
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
_DENIED = ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation")
_POLICY_FILES = {"ecr:PutLifecyclePolicy": "lifecycle.json", "ecr:SetRepositoryPolicy": "pull.json"}
_CLOCK = ("RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed")


@contextmanager
def explain_aws_errors(action: str, resource: str = "") -> Iterator[None]:
    """Turns errors of AWS and boto3 in the block into UserError. action: IAM's name of it; resource: an ARN."""
    try:
        yield
    # ValueError and OSError: boto3 raises them for malformed settings, or for a token's file that does not exist.
    # AttributeError: botocore raises it for JSON that is not an object; such an answer is not from AWS.
    except (aws.BotoCoreError, aws.ClientError, ResponseParserError, AttributeError, OSError, ValueError) as error:
        # `from None`: boto3's traceback may show a request's content.
        is_answer = isinstance(error, aws.ClientError)
        raise UserError(
            _explain_answer(error, action, resource) if is_answer else _explain_boto3_error(error, action)
        ) from None


def code(error: aws.ClientError) -> str:
    """AWS's error code, such as RepositoryNotFoundException; AccessDeniedException for every denial.

    Services use several codes for a denial, and moto may have it only in the message.
    """
    fields = error.response.get("Error", {})
    denied = fields.get("Code") in _DENIED or "is not authorized to perform" in fields.get("Message", "")
    return _DENIED[0] if denied else str(fields.get("Code", ""))


def _explain_answer(error: aws.ClientError, action: str, resource: str) -> str:
    """A sentence about an error that AWS returned."""
    name, message = code(error), " ".join(str(error.response.get("Error", {}).get("Message", "")).split())
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if name == _DENIED[0]:
        return _denied(message, action, resource)
    if message.startswith("<"):  # a web page, such as a proxy's; AWS answers with JSON
        return _NOT_AWS.format(f"{action} ({status})")
    if name in _EXPIRED:
        return "the AWS credentials have expired: get new ones, e.g. with `aws sso login`, and run the command again."
    if name in _CLOCK or "Signature expired" in message or "Signature not yet current" in message:
        return "AWS rejects requests because of their time: set this machine's clock, and run the command again."
    if name in _NOT_ACCEPTED:
        return (
            f"AWS does not accept these credentials ({name}): check that they belong to the right partition (China and "
            "GovCloud have their own) and still exist, and that the region is enabled in the account."
        )
    if status >= 500 or "Throttl" in name or name in ("TooManyRequestsException", "RequestLimitExceeded", "SlowDown"):
        return f"{action} failed at AWS {ATTEMPTS} times ({name or status}): run the command again in a few minutes."
    reason = without_password(message).rstrip(".") or "no reason given"
    if name == "InvalidParameterException" and action in _POLICY_FILES:
        return f"ECR does not accept the policy of ecr/policies/{_POLICY_FILES[action]} ({reason}): fix that file."
    return f"AWS refuses {action}{_on(resource)} ({name or status}): {reason}."


def _denied(message: str, action: str, resource: str) -> str:
    """The missing permission: usually the action's own; if AWS's message names another one, that."""
    named = re.search(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?", message)
    if named:
        action, resource = named[1], (named[2] or resource).rstrip(".")
    who = re.search(r"User: (\S+) is not", message)
    deny = re.search(r"with an explicit deny in an? ([\w -]+)", message)
    if deny:
        return f"{action}{_on(resource)} is denied by an explicit rule in a {deny[1].strip()}: ask who wrote it."
    return (
        f"permission for {action}{_on(resource)} is missing: allow it to {who[1] if who else 'this user or role'}; "
        "ecr/README.md has the minimal policy."
    )


def _on(resource: str) -> str:
    return f" on {resource}" if resource and resource != "*" else ""


def _explain_boto3_error(error: Exception, action: str) -> str:
    """A sentence about an error on this machine or on the way, without an answer from AWS."""
    fields: dict[str, Any] = getattr(error, "kwargs", {})
    match error:
        case aws.NoCredentialsError():
            return NO_CREDENTIALS
        case aws.ProfileNotFound():
            return (
                f"there is no AWS profile {fields.get('profile')!r}: set AWS_PROFILE to one that `aws configure` made."
            )
        case aws.NoRegionError():
            return NO_REGION
        case aws.SSOError() | aws.LoginError() | aws.TokenRetrievalError() | aws.NoAuthTokenError():
            return (
                "the AWS login of this profile has ended: run `aws sso login`, or `aws login`, and the command again."
            )
        case aws.CredentialRetrievalError():
            # The provider's output is not shown, because it may contain the credentials.
            return f"AWS credentials can't be read from {fields.get('provider')}: run it alone to see its error."
        case aws.SSLError():
            reason = " ".join(str(fields.get("error", "")).split())
            return f"{_host(error)} is not trusted ({reason}): name a file with your CA's certificate in AWS_CA_BUNDLE."
        case aws.ProxyConnectionError():
            return f"the proxy {_host(error)} can't be reached: look at HTTPS_PROXY and NO_PROXY."
        case ResponseParserError() | AttributeError():
            return _NOT_AWS.format(action)
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            return (
                f"{name}{error.strerror or 'it can not be read'}: AWS's settings in the environment name it, fix them."
            )
        case aws.ConnectionError() | aws.HTTPClientError():
            return f"{_host(error)} can't be reached for {action}: look at the network, the proxy and the region."
        case ValueError():  # such as a malformed number or address
            return f"boto3 can't read AWS's settings ({in_few_words(error)}): fix ~/.aws/config or the variables AWS_…."
    return f"{action}: {in_few_words(error)}."


def _host(error: Exception) -> str:
    """The endpoint or proxy of an error, without path, query and password."""
    fields: dict[str, Any] = getattr(error, "kwargs", {})
    url = without_password(str(fields.get("endpoint_url") or fields.get("proxy_url") or ""))
    return re.sub(r"^(https?://[^/?]*).*", r"\1", url) or "AWS"
