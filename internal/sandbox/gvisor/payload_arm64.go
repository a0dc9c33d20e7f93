//go:build linux

package gvisor

import "embed"

//go:embed payload/arm64
var payload embed.FS
