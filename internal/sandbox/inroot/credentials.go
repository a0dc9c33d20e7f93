// Package inroot finds files below the root of a sandbox, as a process in it would.
package inroot

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// credentials are the files and folders in which package managers keep registry passwords.
var credentials = []string{
	"etc/npmrc", "usr/etc/npmrc", "usr/local/etc/npmrc", // npm: globalconfig is PREFIX/etc/npmrc
	"usr/local/nvm/versions/node/*/etc/npmrc", "opt/*/etc/npmrc",
	"usr/lib/node_modules/npm/npmrc", "usr/local/lib/node_modules/npm/npmrc", "usr/share/nodejs/npm/npmrc", // npm: builtin
	"etc/yarnrc", "usr/etc/yarnrc", "usr/local/etc/yarnrc", "usr/local/share/.yarnrc", // yarn 1
	"etc/pip.conf", "etc/xdg/pip/pip.conf", "usr/pip.conf", "usr/local/pip.conf", "opt/*/pip.conf", // pip: global, site
	"etc/uv/uv.toml", "etc/xdg/uv/uv.toml",
	"usr/local/cargo/credentials.toml", "usr/local/cargo/credentials", // CARGO_HOME of the Rust images
	"opt/*/credentials.toml", "usr/local/cargo/config.toml", // Cargo: a registry's token can be in both
	"etc/maven/settings.xml", "usr/share/maven/conf/settings.xml", "opt/*/conf/settings.xml", // MAVEN_HOME/conf
	"etc/opt/NuGet/Config/",                                          // NuGet: the machine's
	"usr/share/gradle/init.d/", "usr/share/gradle/gradle.properties", // GRADLE_HOME
	"opt/*/init.d/", "opt/*/gradle.properties",
	"etc/gemrc", "usr/local/etc/gemrc", "usr/local/bundle/config",
	"etc/apt/auth.conf", "etc/apt/auth.conf.d/", // apt_auth.conf(5)
	"etc/docker/config.json", "etc/containers/auth.json", "usr/share/containers/auth.json",
}

// users are the files of the same kind in home folders, which images have.
var users = []string{".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc", ".config/pip/pip.conf", ".pip/pip.conf",
	".cargo/credentials.toml", ".cargo/credentials", ".cargo/config.toml", ".m2/settings.xml", ".m2/settings-security.xml",
	".gradle/gradle.properties", ".gradle/init.gradle", ".gradle/init.d/", ".nuget/NuGet/NuGet.Config",
	".config/NuGet/NuGet.Config", ".config/uv/uv.toml", ".config/pypoetry/auth.toml", ".config/composer/auth.json",
	".docker/config.json", ".git-credentials", ".gem/credentials"}

// Credentials returns the files and folders of a root in which package managers keep passwords, by their paths without
// links; that of a folder ends in "/". It looks below one top folder, as "usr/", or for "" everywhere. It fails if one
// could not be looked for.
func (r *Root) Credentials(top string) (found []string, err error) {
	patterns := slices.Clone(credentials)
	for _, u := range users {
		patterns = append(patterns, "root/"+u, "home/*/"+u)
	}
	entries := map[string][]string{}
	for _, pattern := range patterns {
		if !strings.HasPrefix(pattern, top) {
			continue
		}
		names := []string{pattern}
		if folder, name, many := strings.Cut(pattern, "/*/"); many {
			if _, known := entries[folder]; !known {
				if entries[folder], err = r.list(folder); err != nil {
					return nil, err
				}
			}
			names = nil
			for _, e := range entries[folder] {
				names = append(names, path.Join(folder, e)+"/"+name)
			}
		}
		for _, name := range names {
			at, info, err := r.Stat(name)
			switch {
			case absent(err):
			case err != nil:
				return nil, err
			case info.IsDir() && strings.HasSuffix(name, "/"):
				found = append(found, at+"/")
			case info.Mode().IsRegular():
				if holds, err := r.holds(at); err != nil {
					return nil, err
				} else if holds {
					found = append(found, at)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// judged are the files that every installation of their tool has, and which it cannot do without: they are hidden only
// with a word of a credential in them. A comment of XML does not count.
var (
	judged = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(settings|settings-security)\.xml$|/nuget\.config$|/config\.toml$`)
	})
	comment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)<!--.*?-->`) })
	secrets = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)passw|passphrase|privatekey|token|apikey|credential|<master>`)
	})
)

// holds reports whether a file can hold a credential.
func (r *Root) holds(name string) (bool, error) {
	if !judged().MatchString(name) {
		return true, nil
	}
	f, _, err := r.Open(name)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxJudged+1))
	return len(b) > maxJudged || secrets().Match(comment().ReplaceAll(b, nil)), err
}

const maxJudged = 1 << 20 // bytes; a longer file is hidden

// CredentialsOf is Credentials of a template's root, or of this machine's /usr for "".
func CredentialsOf(dir string) ([]string, error) {
	top := ""
	if dir == "" {
		dir, top = "/", "usr/"
	}
	r, err := Open(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Credentials(top)
}

// list returns the names in a folder; none if it is not there.
func (r *Root) list(folder string) ([]string, error) {
	f, _, err := r.Open(folder)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return names, err
}

// absent reports that a file is not there, or that this user cannot reach it: its sandboxes cannot either.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.ELOOP)
}
