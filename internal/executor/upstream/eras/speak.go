package eras

import (
	"errors"
	"slices"

	"waldo/internal/protocol/jsonrpc"
)

// IsLegacy reports whether a revision is one of the legacy era.
func IsLegacy(revision string) bool { return slices.Contains(jsonrpc.LegacyRevisions, revision) }

// ErrNewer is in the chain of an error of a server that speaks revisions after the legacy ones alone.
var ErrNewer = errors.New("the server does not take what is asked in revision " + jsonrpc.Modern)

// Newer marks the errors that no legacy server makes (MCP basic/versioning, backward compatibility).
func Newer(err error) error {
	var fault *jsonrpc.Error
	if !errors.As(err, &fault) {
		return err
	}
	known := Offered(err)
	if fault.Code == jsonrpc.CodeMismatch || fault.Code == jsonrpc.CodeCapability ||
		len(known) > 0 && !slices.ContainsFunc(known, IsLegacy) {
		return errors.Join(ErrNewer, err)
	}
	return err
}

// Offered returns the revisions that a server supports in place of the requested one.
func Offered(err error) []string {
	var fault *jsonrpc.Error
	if !errors.As(err, &fault) || fault.Code != jsonrpc.CodeUnsupported {
		return nil
	}
	var data struct {
		Supported []string `json:"supported"`
	}
	if fault.Data.IsZero() || fault.Data.Decode(&data) != nil {
		return nil
	}
	return data.Supported
}
