#!/bin/sh
# Stage files, which no image keeps: one of the files in docker/files, checked, in /files/PART for the layer that takes it,
# unpacked where it is an archive. A layer sees what is its own, so that a file which comes or goes rebuilds no other one.
# Usage: files.sh PART VERSION FILE SHA256 [KEY FINGERPRINT]     KEY: the file with the key that FILE.sig was made with
set -eu
part=$1 version=$2 file=$3 sha256=$4

fail() {
    echo "berth: error: $1" >&2
    exit 1
}

need() { # FILE WHY
    [ -f "/tmp/files/$1" ] || fail "$1, $2, is not in docker/files: let \`python build.py build\` fetch it, put it there, or build with --without $part (by hand: --build-arg $(echo "$part" | tr a-z- A-Z_)=none)."
}

# The fingerprint decides, not the key file, whoever sent it. gpgv has no notion of trust, and comes with apt.
check_signature() { # KEY FINGERPRINT
    need "$file.sig" "the signature of $file"
    need "$1" "the key of the signature of $file"
    if ! command -v gpgv >/dev/null; then
        # shellcheck source=docker/layers/network.sh
        . /tmp/tools/network.sh
        install_debian gpgv
    fi
    # It reads keys in binary only.
    if grep -qa -e '^-----BEGIN PGP' "/tmp/files/$1"; then
        sed -e '/^-----/d' -e '/^[A-Za-z]*: /d' -e '/^=/d' "/tmp/files/$1" | base64 -d >/tmp/key
    else
        cp "/tmp/files/$1" /tmp/key
    fi
    gpgv --keyring /tmp/key --status-fd 3 "/tmp/files/$file.sig" "/tmp/files/$file" 3>/tmp/status || true
    # An expired key is still the one that signed: an older version must stay buildable. The last word is the primary key.
    signer=$(sed -n 's/^\[GNUPG:\] VALIDSIG .* //p' /tmp/status)
    again="run \`python build.py pins --fetch $part\`, which fetches file, signature and key again, and look where they come from"
    if grep -q 'REVKEYSIG' /tmp/status; then
        fail "the key that signed $file was revoked: pin a newer version."
    elif [ -n "$signer" ] && [ "$signer" != "$2" ]; then
        fail "$file is signed by the key $signer, and docker/pins.toml has $2: $again."
    elif grep -q 'BADSIG' /tmp/status; then
        fail "$file.sig is not the signature of this $file: $again."
    elif [ -z "$signer" ]; then
        fail "$file.sig is no signature by the key in $1: $again."
    fi
}

unpack_debian() { # LIBRARY: the folder that holds it, libraries only
    found=$(dpkg-deb --field "/tmp/files/$file" Version) || fail "docker/files/$file is no Debian package: pin another file."
    case $found in
    "$version" | "$version"-*) ;;
    *) fail "docker/files/$file has version $found, and docker/pins.toml has $version: pin the file and the version that belong together." ;;
    esac
    dpkg-deb --extract "/tmp/files/$file" /tmp/unpacked
    library=$(find /tmp/unpacked -name "$1" | head -n 1)
    [ -n "$library" ] || fail "docker/files/$file holds no $1: pin the package of the library."
    cp -a "${library%/*}"/lib*.so* "/files/$part"
}

mkdir -p "/files/$part"
if [ "$version" = none ]; then
    exit 0
fi
need "$file" "which $part $version needs"
found=$(sha256sum "/tmp/files/$file" | cut -d ' ' -f 1)
[ "$found" = "$sha256" ] || fail "docker/files/$file is not the pinned file: its sha256 is $found, and docker/pins.toml has $sha256; delete it and build again, or pin the new one."

case $part in
efa)
    check_signature "$5" "$6"
    tar -xzf "/tmp/files/$file" --directory /files/efa --strip-components 1 --no-same-owner &&
        [ -x /files/efa/efa_installer.sh ] || fail "docker/files/$file can't be unpacked to an efa_installer.sh: pin AWS's aws-efa-installer-VERSION.tar.gz."
    ;;
smddp) cp "/tmp/files/$file" /files/smddp ;;
gdrcopy) unpack_debian 'libgdrapi.so.?' ;;
cuda-compat) unpack_debian libcuda.so.1 ;;
esac
