// Package launch is waldo launch: an agent host inside a sandbox, with its project writable, its model's API alone
// reachable, and waldo as its only MCP server.
package launch

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed profiles/*.yaml
var data embed.FS

// Profile is what one agent host needs in a sandbox. The zero Profile gives a program its project and a home.
type Profile struct {
	Name        string                `yaml:"-"`
	Title       string                `yaml:"title"`
	Program     string                `yaml:"program"` // as it is found on PATH
	Package     string                `yaml:"package"` // of npm
	Tested      Versions              `yaml:"tested"`
	Needs       []string              `yaml:"needs"` // other programs, as they are found on PATH
	Login       string                `yaml:"login"` // the credential that is taken where none is found
	Credentials map[string]Credential `yaml:"credentials"`
	Allow       []string              `yaml:"allow"`       // lines of egress
	LoginAllow  []string              `yaml:"login_allow"` // with a credential from a file of the host
	Off         []string              `yaml:"off"`         // refused, and no denial
	Env         map[string]string     `yaml:"env"`
	Args        []string              `yaml:"args"`    // before those of the person
	Seed        map[string]Seed       `yaml:"seed"`    // files below the kept home, written at each start
	Session     map[string]string     `yaml:"session"` // files of the session's folder
	Copy        []string              `yaml:"copy"`    // of the person's home, with no program in them
	OwnSandbox  string                `yaml:"own_sandbox"`
	Servers     []string              `yaml:"servers"` // files of the person that name MCP servers
}

// Versions is a range of versions.
type Versions struct {
	From  string `yaml:"from"`
	Below string `yaml:"below"`
}

// Credential is how a key of the model goes into requests. Its variable holds a placeholder in the sandbox.
type Credential struct {
	Host    string   `yaml:"host"`
	As      string   `yaml:"as"`
	Name    string   `yaml:"name"`
	Shape   string   `yaml:"shape"` // the beginning of the placeholder, or jwt
	Methods []string `yaml:"methods"`
	Paths   []string `yaml:"paths"`
	Also    []string `yaml:"also"`  // other variables with the placeholder
	File    string   `yaml:"file"`  // below the person's home: where a login keeps it
	Field   string   `yaml:"field"` // of that file
	Renew   Login    `yaml:"renew"` // how a login is renewed; zero: it is not

	Env  map[string]string `yaml:"env"`  // variables that go with it
	Auth string            `yaml:"auth"` // the host's name for it: {auth} in its files
}

// Seed is a file of the kept home that waldo writes at each start.
type Seed struct {
	Text  string   `yaml:"text"`  // the whole file; {kept} stands for lines of the person's file
	Merge string   `yaml:"merge"` // JSON that is merged into the file, over what the host wrote
	Drop  []string `yaml:"drop"`  // keys that are removed first
	From  string   `yaml:"from"`  // the person's file below their home
	Keep  []string `yaml:"keep"`  // its keys that are taken; all others are left out
}

// Names are the hosts that have a profile.
func Names() (names []string) {
	all, err := data.ReadDir("profiles")
	if err != nil {
		return nil
	}
	for _, f := range all {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Find reads the profile of a host.
func Find(name string) (Profile, error) {
	b, err := data.ReadFile(path.Join("profiles", name+".yaml"))
	if err != nil {
		return Profile{}, fmt.Errorf("unknown host %q", name)
	}
	p := Profile{Name: name}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	return p, nil
}

// Has reports whether a version is in the range. A text that is no version is not.
func (v Versions) Has(version string) bool {
	return version != "" && compare(version, v.From) >= 0 && compare(version, v.Below) < 0
}

// compare compares two versions part by part, as numbers.
func compare(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		if d := part(x, i) - part(y, i); d != 0 {
			return d
		}
	}
	return 0
}

func part(all []string, i int) int {
	if i >= len(all) {
		return 0
	}
	digits, _, _ := strings.Cut(all[i], "-")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}
