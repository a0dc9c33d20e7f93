package deps

import (
	_ "github.com/BobuSumisu/aho-corasick"
	_ "github.com/go-json-experiment/json/jsontext"
	_ "github.com/google/cel-go/cel"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/crypto/scrypt"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "modernc.org/sqlite"
)
