package packages

// Default is where a manager reads packages on a machine that sets nothing.
type Default struct {
	Registry string   // https
	Files    []string // hosts and paths that the registry's index names for files, besides its own
	Source   string   // where the manager's documentation says so
}

// Defaults are the managers' own, by manager. These names stand here alone.
var Defaults = map[Manager]Default{
	NPM: {Registry: "https://registry.npmjs.org/",
		Source: "https://docs.npmjs.com/cli/using-npm/config#registry"},
	PyPI: {Registry: "https://pypi.org/simple", Files: []string{"files.pythonhosted.org/packages/*"},
		Source: "https://pip.pypa.io/en/stable/cli/pip_install/#cmdoption-i; files: https://docs.pypi.org/api/index-api/"},
	Debian: {Registry: "https://deb.debian.org/debian", Source: "https://wiki.debian.org/SourcesList"},
}
