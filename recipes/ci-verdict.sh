#!/bin/sh
# Analyze a profile in a pipeline: keep the document, print one line per device.
# usage: ci-verdict.sh PROFILE [DOCUMENT.json]
set -eu
profile=$1
document=${2:-verdict.json}
npuperf analyze "$profile" --format json --force -o "$document"
npuperf analyze "$profile" --format csv --table devices
