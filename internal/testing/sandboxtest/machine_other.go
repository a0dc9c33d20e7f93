//go:build !linux || !(amd64 || arm64)

package sandboxtest

import "errors"

// BehindMain returns an error: only Linux can simulate other machines.
func BehindMain([]string, func(string) (string, error)) error {
	return errors.New("other machines are simulated on Linux alone")
}
