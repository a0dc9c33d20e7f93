//go:build linux && !nogvisor

package gvisor

import "embed"

//go:embed payload/amd64
var payload embed.FS
