// Package gen is waldo gen: typed Python and TypeScript for the tools of a server.
package gen

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/config"
	"waldo/internal/feature"
	"waldo/internal/feature/gen/codefiles"
	"waldo/internal/feature/gen/codegen"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// Feature is waldo gen.
var Feature = feature.Feature{
	Name:     "gen",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newGen(g)} },
}

func newGen(g *cli.Context) *cobra.Command {
	n := &generation{Context: g}
	c := &cobra.Command{
		Use:   "gen --url U | --command C --name N [--lang python,typescript] [--fs-layout] [--out DIR]",
		Short: "Write typed Python and TypeScript for the tools of a server", Args: cobra.NoArgs,
		Long: "Writes servers/NAME/TOOL.py and TOOL.ts, one file for each tool, with Params, call and SERVER_URL, " +
			"and an index.\nWith --name alone the server is one of waldo.yaml. A server that --command names starts in a " +
			"sandbox without network.\nA file that waldo gen did not write, or that was changed since, is never replaced.",
		Example: "  waldo gen --name github\n  waldo gen --url https://mcp.example.com/mcp --name example --lang python\n" +
			"  waldo gen --command 'my-server stdio' --name mine --out ./agent",
		RunE: func(c *cobra.Command, _ []string) error { return n.run(c) },
	}
	f := c.Flags()
	f.StringVar(&n.url, "url", "", "the `ADDRESS` of the server")
	f.StringVar(&n.command, "command", "",
		"the `COMMAND` that starts the server; quotes as in a shell, and nothing is expanded")
	f.StringVar(&n.name, "name", "", "the server's `NAME`")
	f.StringSliceVar(&n.languages, "lang", []string{"python", "typescript"}, "the `LANGUAGES` to write")
	f.Bool("fs-layout", true, "one file for each tool below servers/NAME; the only layout")
	f.StringVar(&n.out, "out", ".", "the `FOLDER` that gets servers/NAME")
	c.MarkFlagsMutuallyExclusive("url", "command")
	for flag, values := range map[string]func(context.Context) []string{
		"lang": func(context.Context) []string { return []string{"python", "typescript"} }, "name": g.Servers,
	} {
		complete := func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return values(c.Context()), cobra.ShellCompDirectiveNoFileComp
		}
		_ = c.RegisterFlagCompletionFunc(flag, complete) // an error: unknown flag
	}
	return c
}

// generation is one run of waldo gen.
type generation struct {
	*cli.Context
	url, command, name, out string
	languages               []string
}

// generated is its result in JSON.
type generated struct {
	Server string            `json:"server"`
	Folder string            `json:"folder"`
	Tools  int               `json:"tools"`
	Hidden []catalog.Problem `json:"hidden"`
	codefiles.Written
}

func (n *generation) run(c *cobra.Command) error {
	if n.name == "" {
		return fault.Usage("as in --name github", "a server needs a name")
	}
	if layout, err := c.Flags().GetBool("fs-layout"); err != nil || !layout {
		return fault.Usage("leave it out", "--fs-layout is the only layout")
	}
	var languages []codegen.Language
	for _, l := range n.languages {
		if l != string(codegen.Python) && l != string(codegen.TypeScript) {
			return fault.Usage("as in --lang python,typescript", "--lang %s: it is python or typescript", l)
		}
		languages = append(languages, codegen.Language(l))
	}
	set := app.Options{Tells: true}
	if n.url != "" || n.command != "" {
		cfg, err := n.alone()
		if err != nil {
			return err
		}
		set.Cfg = cfg
	}
	h, err := n.Open(c.Context(), set)
	if err != nil {
		return err
	}
	defer h.Close()
	server, ok := h.Config.Servers[n.name]
	if !ok {
		return fault.Usage("give --url or --command, or a name that waldo lock lists", "unknown server %s", n.name)
	}
	found, hidden, err := h.Defined(c.Context(), n.name)
	if err != nil {
		return err
	}
	tools := make([]codegen.Tool, len(found))
	for i, t := range found {
		wire := strings.TrimPrefix(string(t.Capability), n.name+".")
		tools[i] = codegen.Tool{Name: wire, Title: t.Title, Description: t.Description, Input: t.Input, Output: t.Output}
	}
	files, err := codegen.Generate(codegen.Server{Name: n.name, URL: server.URL}, tools, languages)
	if err != nil {
		return err
	}
	done, err := codefiles.Write(n.out, n.name, files)
	if err != nil {
		return err
	}
	r := generated{n.name, "servers/" + codegen.Folder(n.name), len(tools), append([]catalog.Problem{}, hidden...), done}
	if n.JSON {
		return terminal.JSON(c.OutOrStdout(), r)
	}
	tellGenerated(c.OutOrStdout(), c.ErrOrStderr(), r)
	return nil
}

// alone returns a configuration of the one server that the flags name.
func (n *generation) alone() (*contract.Config, error) {
	server := map[string]any{"url": n.url}
	if n.command != "" {
		words, err := split(n.command)
		if err != nil || len(words) == 0 {
			return nil, fault.Usage(`as in --command "my-server --name 'two words'"`,
				"--command %q is not a command: %v", n.command, cmp.Or(err, errors.New("it is empty")))
		}
		server = map[string]any{"command": words}
	}
	text, err := json.Marshal(map[string]any{"version": 1, "servers": map[string]any{n.name: server}})
	if err != nil {
		return nil, err
	}
	cfg, problems := config.Parse("waldo gen", text) // JSON is YAML
	if len(problems) > 0 {
		return nil, fault.Usage("see waldo gen --help", "%s", problems[0].Text)
	}
	cfg.File = "" // the waldo.lock of this folder is not about it
	return cfg, nil
}

// tellGenerated prints what was written, and which tools were left out.
func tellGenerated(out, notes io.Writer, r generated) {
	for _, p := range r.Hidden {
		display.Fprintf(notes, "waldo: %s is left out: %s (%s)\n", app.LeftOut(p), display.Lines(p.Text), p.Code)
	}
	for _, name := range r.Removed {
		display.Fprintf(out, "removed %s\n", name)
	}
	display.Fprintf(out, "%s: %s; %s written, %d as before\n", r.Folder, display.Count(r.Tools, "tool"),
		display.Count(len(r.Written.Written), "file"), len(r.Same))
}
