"""AWS's errors, and boto3's own, as sentences that say what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from berth.common.errors import UserError
from berth.common.http import without_password

ATTEMPTS = 6
"""How often a call is made at most that AWS throttles, that fails on its side or that reaches nobody."""
NO_REGION = "no AWS region is set: give --region, set AWS_REGION, or write a region into your profile."
NO_CREDENTIALS = (
    "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with "
    "`aws sso login`."
)
_NOT_AWS = "what answers for {} is not AWS: see where AWS_ENDPOINT_URL and its kind, or HTTPS_PROXY, point to."

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
    """What AWS refuses inside, as the sentence that `explain` makes of it."""
    try:
        yield
    # What is no answer of AWS's, or a file with a token that is not there, boto3 lets through as it comes.
    except (aws.BotoCoreError, aws.ClientError, ResponseParserError, OSError, ValueError) as error:
        # No `from`: a traceback of boto3's may show what a request held.
        raise explain(error, action, resource) from None


def explain(error: Exception, action: str, resource: str = "") -> UserError:
    """AWS's refusal, or boto3's, in a sentence with what to do; `action` as IAM calls it, `resource` an ARN."""
    if isinstance(error, aws.ClientError):
        return UserError(_of_aws(error, action, resource))
    return UserError(_of_boto3(error, action))


def code(error: aws.ClientError) -> str:
    """AWS's own name of an error, such as RepositoryNotFoundException; AccessDeniedException for each denial.

    Services call that by several names, and what stands in for one, such as moto, may say it in the message alone.
    """
    about = error.response.get("Error", {})
    denied = about.get("Code") in _DENIED or "is not authorized to perform" in about.get("Message", "")
    return _DENIED[0] if denied else str(about.get("Code", ""))


def _of_aws(error: aws.ClientError, action: str, resource: str) -> str:
    """A sentence about what a service of AWS answered."""
    name, message = code(error), " ".join(str(error.response.get("Error", {}).get("Message", "")).split())
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if name == _DENIED[0]:
        return _denied(message, action, resource)
    if message.startswith("<"):  # a proxy's page, where AWS speaks JSON
        return _NOT_AWS.format(f"{action} ({status})")
    if name in _EXPIRED:
        return "the AWS credentials have expired: get new ones, such as by `aws sso login`, and run the command again."
    if name in _CLOCK or "Signature expired" in message or "Signature not yet current" in message:
        return "AWS refuses requests for their time: set this machine's clock, and run the command again."
    if name in _NOT_ACCEPTED:
        return (
            f"AWS does not accept these credentials ({name}): see that they are of the right partition (China and "
            "GovCloud have their own), still exist, and that the region is switched on in the account."
        )
    if status >= 500 or "Throttl" in name or name in ("TooManyRequestsException", "RequestLimitExceeded", "SlowDown"):
        return (
            f"AWS does not answer {action}, tried {ATTEMPTS} times ({name or status}): run the command again in a few "
            "minutes."
        )
    reason = without_password(message).rstrip(".") or "it does not say why"
    if name == "InvalidParameterException" and action in _POLICY_FILES:
        return f"ECR does not take the policy of ecr/policies/{_POLICY_FILES[action]} ({reason}): fix that file."
    return f"AWS refuses {action}{_on(resource)} ({name or status}): {reason}."


def _denied(message: str, action: str, resource: str) -> str:
    """Which permission is missing: AWS's message names it, where a call needs more than the one of its own name."""
    named = re.search(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?", message)
    if named:
        action, resource = named[1], (named[2] or resource).rstrip(".")
    who = re.search(r"User: (\S+) is not", message)
    deny = re.search(r"with an explicit deny in an? ([\w -]+)", message)
    if deny:
        return f"{action}{_on(resource)} is denied by an explicit rule in a {deny[1].strip()}: ask who wrote it."
    return (
        f"permission for {action}{_on(resource)} is missing: allow it to {who[1] if who else 'this user or role'}; "
        "ecr/README.md has the least policy that suffices."
    )


def _on(resource: str) -> str:
    return f" on {resource}" if resource and resource != "*" else ""


def _of_boto3(error: Exception, action: str) -> str:
    """A sentence about what went wrong on this side, before AWS gave an answer."""
    about: dict[str, Any] = getattr(error, "kwargs", {})
    match error:
        case aws.NoCredentialsError():
            return NO_CREDENTIALS
        case aws.ProfileNotFound():
            return (
                f"there is no AWS profile {about.get('profile')!r}: set AWS_PROFILE to one that `aws configure` made."
            )
        case aws.NoRegionError():
            return NO_REGION
        case aws.SSOError() | aws.LoginError() | aws.TokenRetrievalError() | aws.NoAuthTokenError():
            return (
                "the AWS login of this profile has ended: run `aws sso login`, or `aws login`, and the command again."
            )
        case aws.CredentialRetrievalError():
            # What a credential process wrote may hold the credentials themselves.
            return f"AWS credentials can't be had from {about.get('provider')}: run it alone and see what it says."
        case aws.SSLError():
            reason = " ".join(str(about.get("error", "")).split())
            return f"{_host(error)} is not trusted ({reason}): name a file with your CA's certificate in AWS_CA_BUNDLE."
        case aws.ProxyConnectionError():
            return f"the proxy {_host(error)} can't be reached: look at HTTPS_PROXY and NO_PROXY."
        case ResponseParserError():
            return _NOT_AWS.format(action)
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            return (
                f"{name}{error.strerror or 'it can not be read'}: AWS's settings in the environment name it, fix them."
            )
        case aws.ConnectionError() | aws.HTTPClientError():
            return f"{_host(error)} can't be reached for {action}: look at the network, the proxy and the region."
        case ValueError():  # of a number or an address that is none
            return f"boto3 can't read AWS's settings ({_message(error)}): fix ~/.aws/config, or the variables AWS_…."
    return f"{action} could not be asked for: {_message(error)}."


def _message(error: Exception) -> str:
    return without_password(" ".join(str(error).split())).rstrip(".")


def _host(error: Exception) -> str:
    """Whom it was about, without a path, a query or a password."""
    about: dict[str, Any] = getattr(error, "kwargs", {})
    url = without_password(str(about.get("endpoint_url") or about.get("proxy_url") or ""))
    return re.sub(r"^(https?://[^/?]*).*", r"\1", url) or "AWS"
