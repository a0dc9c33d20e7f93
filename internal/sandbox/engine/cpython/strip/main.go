// Command strip copies a WebAssembly module without its custom sections, such as debug information.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

func main() {
	module, err := io.ReadAll(os.Stdin)
	if err == nil {
		module, err = strip(module)
	}
	if err == nil {
		_, err = os.Stdout.Write(module)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "strip:", err)
		os.Exit(1)
	}
}

// strip returns a module without its custom sections.
func strip(module []byte) ([]byte, error) {
	const head = 8
	if len(module) < head {
		return nil, fmt.Errorf("no module: %d bytes", len(module))
	}
	kept := append([]byte(nil), module[:head]...)
	for at := head; at < len(module); {
		size, n := binary.Uvarint(module[at+1:])
		next := at + 1 + n + int(size)
		if n <= 0 || next > len(module) || next <= at {
			return nil, fmt.Errorf("a section at byte %d does not end", at)
		}
		if module[at] != 0 {
			kept = append(kept, module[at:next]...)
		}
		at = next
	}
	return kept, nil
}
