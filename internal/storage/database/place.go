package database

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"waldo/internal/model/id"
	"waldo/internal/storage/safefile"
)

// PlaceFile names the PostgreSQL database of a state directory. Without the file its rows are in waldo.db.
const PlaceFile = "waldo.store"

// sqliteFile is the database of a state directory without a PlaceFile.
const sqliteFile = "waldo.db"

// SQLite is the URL of a store that is the file waldo.db.
const SQLite = "sqlite"

// place is what a state directory says of its store.
type place struct {
	URL  string `json:"url"`  // without a password
	Name string `json:"name"` // of the state directory, in the rows that are its own
}

// readPlace returns the place of a state directory's rows; the zero value: waldo.db.
func readPlace(dir string) (place, error) {
	file := filepath.Join(dir, PlaceFile)
	b, err := safefile.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return place{}, nil
	}
	if err != nil {
		return place{}, fmt.Errorf("store: %w", err)
	}
	var p place
	if err := json.Unmarshal(b, &p); err != nil || p.URL == "" || !id.Is(directory, p.Name) {
		return place{}, fmt.Errorf("store: %s is damaged: restore it, or the state directory, from a backup", file)
	}
	return p, nil
}

// directory is the prefix of a state directory's name.
const directory id.Kind = "sd_"

// bind writes the place of a state directory that has none. A process that binds at the same time finds the file.
func bind(dir, url string) (place, error) {
	p := place{URL: url, Name: id.New(directory)}
	if err := bindAs(dir, p); errors.Is(err, fs.ErrExist) {
		return readPlace(dir)
	} else if err != nil {
		return place{}, err
	}
	return p, nil
}

// bindAs writes the place of a state directory that has none.
func bindAs(dir string, p place) error {
	b, err := json.Marshal(p)
	if err == nil {
		err = safefile.Replace(filepath.Join(dir, seenFile), []byte(nothingSeen), 0o600)
	}
	if err == nil {
		err = safefile.Create(filepath.Join(dir, PlaceFile), append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// URL returns where the rows are: SQLite, or the URL of a PostgreSQL database.
func (s *Store) URL() string {
	if s.place.URL == "" {
		return SQLite
	}
	return s.place.URL
}

// Shared reports whether state directories of other hosts can have rows in the same database.
func (s *Store) Shared() bool { return s.place.URL != "" }

// Own returns the name of something that only this state directory has, as it stands in a database that others share.
func (s *Store) Own(name string) string { return s.place.own(name) }

func (p place) own(name string) string {
	if p.Name == "" {
		return name
	}
	return name + "@" + p.Name
}

// Place returns the name of this state directory in the rows of a shared database; empty: nobody shares it.
func (s *Store) Place() string { return s.place.Name }

// ownBuckets are the buckets whose rows are about one state directory: its log, its folders, or its machine.
var ownBuckets = []string{
	"appeared",                               // definitions, by the path of a lock file
	"approval",                               // the first approver of the log
	"cli",                                    // the workspace of waldo call, by a user of the machine
	"console-links",                          // for a user of the machine
	"consoles",                               // ports of the machine
	"e2b", "e2b.body", "sandbox", "snapshot", // folders and content of sandboxes
	"elsewhere", // questions for the approvers of the log
}

// Bucket returns the name of a bucket as it stands in the database.
func (s *Store) Bucket(name string) string { return s.place.bucket(name) }

func (p place) bucket(name string) string {
	if slices.Contains(ownBuckets, name) {
		return p.own(name)
	}
	return name
}
