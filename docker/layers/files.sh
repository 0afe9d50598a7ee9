#!/bin/sh
# Stages driver and files, which no image contains: put the files that no package index has into /files/PART for their layer,
# unpacked if they are archives, with the version in /files/PART/VERSION. The folder is empty for a part that is left out.
# A file comes from docker/files, or from its URL.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

# fetch FILE URL: prints its path.
fetch() {
    if [ -f "/tmp/files/$1" ]; then
        echo "/tmp/files/$1"
        return
    fi
    reason="the profile names no URL for it"
    if [ -n "$2" ]; then
        echo "downloading $2" >&2
        if reason=$(/opt/berth/bin/python -B /tmp/layer/download.py "$2" "/tmp/$1" 2>&1 >&3); then
            echo "/tmp/$1"
            return
        fi
    fi
    fail "$1, which $PART $VERSION needs, is not in docker/files and can't be downloaded ($reason): put it into docker/files, or build without it (--build-arg WITHOUT=$PART; build.py build --without $PART)."
}

# Trusts the pinned fingerprint, whatever the source of the key file. gpgv has no trust database, and comes with apt.
check_signature() { # ARCHIVE
    signature=$(fetch "$FILE.sig" "${URL:+$URL.sig}")
    key=$(fetch "$KEY_FILE" "$KEY_URL")
    if ! command -v gpgv >/dev/null; then
        install_debian gpgv
    fi
    # gpgv reads only binary keys.
    if grep -qa -e '^-----BEGIN PGP' "$key"; then
        sed -e '/^-----/d' -e '/^[A-Za-z]*: /d' -e '/^=/d' "$key" | base64 -d >/tmp/key
    else
        cp "$key" /tmp/key
    fi
    gpgv --keyring /tmp/key --status-fd 4 "$signature" "$1" 4>/tmp/status || true
    # An expired key is accepted, so that older versions can still be built. The last word is the primary key.
    signer=$(sed -n 's/^\[GNUPG:\] VALIDSIG .* //p' /tmp/status)
    again="delete $FILE, $FILE.sig and $KEY_FILE from docker/files, build again, and check where they came from"
    if grep -q 'REVKEYSIG' /tmp/status; then
        fail "the key that signed $FILE was revoked: pin a newer version."
    elif [ -n "$signer" ] && [ "$signer" != "$KEY_FINGERPRINT" ]; then
        fail "$FILE is signed by the key $signer, and docker/pins.toml has $KEY_FINGERPRINT: $again."
    elif grep -q 'BADSIG' /tmp/status; then
        fail "$FILE.sig is not the signature of this $FILE: $again."
    elif [ -z "$signer" ]; then
        fail "$FILE.sig is not a signature by the key in $KEY_FILE: $again."
    fi
}

unpack_debian() { # PACKAGE LIBRARY: only the libraries of the folder that holds LIBRARY
    package_version=$(dpkg-deb --field "$1" Version) || fail "$FILE is not a Debian package: pin another file."
    case $package_version in
    "$VERSION" | "$VERSION"-*) ;;
    *) fail "$FILE has version $package_version, and docker/pins.toml has $VERSION: pin the file and the version that belong together." ;;
    esac
    dpkg-deb --extract "$1" /tmp/unpacked
    library=$(find /tmp/unpacked -name "$2" | head -n 1)
    [ -n "$library" ] || fail "$FILE does not contain $2: pin the package of the library."
    cp -a "${library%/*}"/lib*.so* "/files/$PART"
}

mkdir -p /files/cuda-compat /files/efa /files/smddp /files/gdrcopy
exec 3>&1 # for progress from inside $(fetch …)
for each in /tmp/layer/*.env; do
    [ -f "$each" ] || continue
    # shellcheck source=/dev/null
    . "$each"
    archive=$(fetch "$FILE" "$URL")
    digest=$(sha256sum "$archive" | cut -d ' ' -f 1)
    [ "$digest" = "$SHA256" ] || fail "$FILE is not the pinned file: its sha256 is $digest, and docker/pins.toml has $SHA256; delete it from docker/files and build again, or pin the new one."
    case $PART in
    efa)
        check_signature "$archive"
        tar -xzf "$archive" --directory /files/efa --strip-components 1 --no-same-owner &&
            [ -x /files/efa/efa_installer.sh ] || fail "$FILE can't be unpacked to an efa_installer.sh: pin AWS's aws-efa-installer-VERSION.tar.gz."
        ;;
    smddp) cp "$archive" "/files/smddp/$FILE" ;;
    gdrcopy) unpack_debian "$archive" 'libgdrapi.so.?' ;;
    cuda-compat) unpack_debian "$archive" libcuda.so.1 ;;
    esac
    echo "$VERSION" >"/files/$PART/VERSION"
done
