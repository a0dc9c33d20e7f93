package runner

import (
	"path"
	"slices"
	"strings"

	"waldo/internal/model/call"
	"waldo/internal/sandbox/guest"
)

// imaged returns the environment of a run: the requested lines, the image's, and our own lines, which include the
// image's PATH. Our lines win, then the requested ones.
func (o Options) imaged(asked []string) []string {
	asked = slices.Clone(asked)
	for _, kv := range o.Image.Env {
		k, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(asked, func(a string) bool { return strings.HasPrefix(a, k+"=") }) {
			asked = append(asked, kv)
		}
	}
	env := environment(asked, o.Run)
	if dirs := o.path(); len(dirs) > 0 {
		i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "PATH=") })
		env[i] = "PATH=" + strings.Join(dirs, ":")
	}
	return env
}

// path returns the absolute folders of the image's PATH; none: ours are used.
func (o Options) path() (dirs []string) {
	for _, kv := range o.Image.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = slices.DeleteFunc(strings.Split(v, ":"), func(d string) bool { return !path.IsAbs(d) })
		}
	}
	return dirs
}

// interpreter finds the interpreter of a language as the run will: first where the image's PATH has it.
func (o Options) interpreter(lang guest.Lang) (string, *call.Reason) {
	var first []string
	for _, dir := range o.path() {
		for _, p := range interpreters[lang] {
			if at := path.Join(dir, path.Base(p)); !slices.Contains(first, at) {
				first = append(first, at)
			}
		}
	}
	return interpreter(lang, o.template(), first)
}
