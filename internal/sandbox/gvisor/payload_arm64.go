//go:build linux && !nogvisor

package gvisor

import "embed"

//go:embed payload/arm64
var payload embed.FS
