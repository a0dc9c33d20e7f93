// Package program runs one JavaScript or TypeScript program in QuickJS: console, timers, files of the workspace,
// modules, and the bridge to waldo. It is the main function of a process of its own, which the driver starts.
package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"

	"waldo/internal/sandbox/guest"
)

// Prelude is the beginning of the standard input. The process reads its last byte when it is ready for a job.
const Prelude = "waldo-engine\n\n"

// maxImage bounds a suspended program on its way in, in bytes.
const maxImage = 64 << 20

// Job follows the prelude: a script, or a program that goes on.
type Job struct {
	Lang    guest.Lang        `json:"lang"`
	Name    string            `json:"name"`
	Args    []string          `json:"args"`
	Servers []string          `json:"servers"`
	Env     map[string]string `json:"env"`
	Code    []byte            `json:"-"`
	Image   []byte            `json:"-"` // as Suspended has it; nil: a fresh program
	Resumed bool              `json:"resumed,omitempty"`
	Offset  int               `json:"offset"` // columns before the script's first line
	// Waiting are the ids of the requests that the image waits for.
	Waiting []string `json:"waiting,omitempty"`
}

// Text returns the job as it goes to the process.
func (j Job) Text() (*strings.Reader, error) {
	if len(j.Code) > guest.MaxScript {
		return nil, fmt.Errorf("the script has %d bytes: at most %d run", len(j.Code), guest.MaxScript)
	}
	if len(j.Image) > maxImage {
		return nil, fmt.Errorf("the suspended program has %d bytes: at most %d go on", len(j.Image), maxImage)
	}
	if j.Name == "" {
		j.Name = map[guest.Lang]string{guest.TypeScript: "script.ts", guest.Python: "script.py"}[j.Lang]
	}
	if j.Name == "" {
		j.Name = "script.js"
	}
	body := j.Code
	if j.Image != nil {
		body, j.Resumed = j.Image, true
	}
	head, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return strings.NewReader(fmt.Sprintf("%11d %11d\n%s%s", len(head), len(body), head, body)), nil
}

// readJob reads a job.
func readJob(r io.Reader) (Job, error) {
	var j Job
	lengths := make([]byte, 24)
	if _, err := io.ReadFull(r, lengths); err != nil {
		return j, errors.New("the script did not arrive")
	}
	head, err1 := strconv.Atoi(strings.TrimSpace(string(lengths[:11])))
	body, err2 := strconv.Atoi(strings.TrimSpace(string(lengths[12:23])))
	if err1 != nil || err2 != nil || head < 0 || body < 0 || head > 16<<20 || body > maxImage {
		return j, errors.New("the script did not arrive whole")
	}
	text := make([]byte, head+body)
	if _, err := io.ReadFull(r, text); err != nil {
		return j, errors.New("the script did not arrive whole")
	}
	if err := json.Unmarshal(text[:head], &j); err != nil {
		return j, fmt.Errorf("the job: %w", err)
	}
	if j.Resumed {
		j.Image = text[head:]
	} else {
		j.Code = text[head:]
	}
	if j.Args == nil {
		j.Args = []string{}
	}
	if j.Servers == nil {
		j.Servers = []string{}
	}
	return j, nil
}

// statement finds import and export statements, as boot.js of the Node runtime does.
var statement = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\s*(import\s*[\w{*'"]|export\s+(default|const|let|var|function|class` +
		`|async)\b|export\s*[{*])|\bimport\.meta\b`)
})

const (
	wrapHead = "(async function (require, module, exports, __filename, __dirname) {"
	wrapTail = "\n})"
)

// source returns what is evaluated for a script, and as a module of its name if it is one.
func source(j Job) (script, module string, err error) {
	text := string(bytes.TrimPrefix(j.Code, []byte("\xef\xbb\xbf")))
	if strings.HasPrefix(text, "#!") {
		text = "//" + text
	}
	isModule := statement().MatchString(text)
	if j.Lang == guest.TypeScript {
		if !isModule { // return and await are at the top of a function then
			text = wrapHead + text + wrapTail
		}
		if text, err = strip(j.Name, text); err != nil {
			return "", "", err
		}
	} else if !isModule {
		text = wrapHead + text + wrapTail
	}
	if isModule {
		return "__waldo(() => import(" + quoted(j.Name) + "))", text, nil
	}
	return "__waldo(" + strings.TrimSuffix(strings.TrimSpace(text), ";") + ")", "", nil
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// strip removes the types of TypeScript. It runs in the program's process, because its text is an agent's.
func strip(name, text string) (string, error) {
	loader := api.LoaderTS
	if path.Ext(name) == ".tsx" {
		loader = api.LoaderTSX
	}
	r := api.Transform(text, api.TransformOptions{Loader: loader, Target: api.ES2023, Sourcefile: name,
		LogLevel:    api.LogLevelSilent,
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":false,"experimentalDecorators":true}}`})
	if len(r.Errors) > 0 {
		m := r.Errors[0]
		if l := m.Location; l != nil {
			column := l.Column
			if l.Line == 1 && strings.HasPrefix(text, wrapHead) {
				column = max(0, column-len(wrapHead))
			}
			return "", fmt.Errorf("SyntaxError: %s\n    at %s:%d:%d", m.Text, name, l.Line, column+1)
		}
		return "", fmt.Errorf("SyntaxError: %s", m.Text)
	}
	return string(r.Code), nil
}
