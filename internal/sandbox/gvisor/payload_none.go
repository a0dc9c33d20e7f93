//go:build linux && nogvisor && (amd64 || arm64)

package gvisor

import "embed"

// payload is empty: this build leaves gVisor out.
var payload embed.FS
