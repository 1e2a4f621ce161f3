#!/usr/bin/env bash
# Make a certificate authority and the SuperLink's certificate, valid for the names and addresses given:
#     bash deploy/certificates.sh FOLDER superlink.example.org 203.0.113.5 127.0.0.1
# ca.crt goes to every SuperNode and user; server.pem and server.key stay on the SuperLink, ca.key offline.
set -euo pipefail
if [ $# -lt 2 ]; then
    echo "usage: certificates.sh FOLDER NAME_OR_ADDRESS..." >&2
    exit 2
fi
folder=$1
shift
names=()
for name in "$@"; do
    case $name in
        *:*) names+=("IP:$name") ;;
        *[!0-9.]*) names+=("DNS:$name") ;;
        *) names+=("IP:$name") ;;
    esac
done
mkdir -p "$folder"
cd "$folder"
umask 077
curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes)
if [ ! -e ca.key ]; then
    openssl req -x509 "${curve[@]}" -keyout ca.key -out ca.crt -days 3650 -subj "/CN=federation CA"
fi
openssl req "${curve[@]}" -keyout server.key -out server.csr -subj "/CN=SuperLink"
printf 'subjectAltName=%s\n' "$(IFS=,; echo "${names[*]}")" > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 \
    -extfile server.ext -out server.pem
rm server.csr server.ext
chmod 644 ca.crt server.pem
