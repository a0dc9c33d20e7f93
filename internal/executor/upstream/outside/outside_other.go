//go:build !unix

package outside

// Main does nothing: no program is started here.
func Main() {}
