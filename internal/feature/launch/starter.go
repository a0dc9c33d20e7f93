package launch

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/config/starter"
)

//go:embed starter.yaml
var beginning string

// startOf returns what waldo init --like HOST writes for a folder, and the command that comes next.
func startOf(host, folder string) (text []byte, next string, err error) {
	p, err := Find(host)
	if err != nil {
		return nil, "", err
	}
	with := strings.NewReplacer("HOST", p.Name, "TITLE", p.Title, "# ALLOW", "#   "+strings.Join(slices.Concat(p.Allow, p.LoginAllow), "\n  #   "))
	return starter.Fill(with.Replace(beginning), folder),
		fmt.Sprintf("waldo launch %s --explain # says what it could do; without --explain it starts", p.Name), nil
}
