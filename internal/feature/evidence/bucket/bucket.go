// Package bucket keeps objects that are written once: in a folder, or in a bucket of the S3 API. It knows names and
// bytes, and nothing of a log.
package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"

	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
)

// Bucket holds objects by name. A name has parts of letters, digits, '.', '-' and '_', with slashes between.
type Bucket interface {
	// Put writes an object. Where the name has one already, that stays, and the error is ErrExists.
	Put(ctx context.Context, name string, b []byte) error
	// Get returns an object of at most so many bytes; fs.ErrNotExist: there is none. ErrUnreadable is of this object
	// alone: it has more bytes, is no regular file, or may not be read.
	Get(ctx context.Context, name string, most int) ([]byte, error)
	// List returns the names that begin with a prefix and sort behind another name, in order. With an error, it returns
	// those that it came to.
	List(ctx context.Context, prefix, after string) ([]string, error)
}

// MaxObject bounds an object that is read, in bytes: twice a segment of the log.
const MaxObject = 128 << 20

var (
	// ErrExists: the name has an object already.
	ErrExists = errors.New("an object with this name is there already")
	// ErrUnreadable: this one object cannot be read.
	ErrUnreadable = errors.New("the object cannot be read")
	// ErrOverwrites: the bucket replaces objects in spite of If-None-Match.
	ErrOverwrites = errors.New("the bucket overwrites objects: it ignores If-None-Match. Use one that keeps the first")
)

// Open returns the bucket that a configuration names. It makes no request.
func Open(c contract.Blobs, value func(secret.Ref) (secret.Value, error)) (Bucket, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "file":
		return Folder(filepath.FromSlash(u.Path)), nil
	case "s3":
		return newS3(c, u, value)
	}
	return nil, fmt.Errorf("blobs.url must be file:///FOLDER or s3://BUCKET/PREFIX, and is %q", c.URL)
}

// WriteOnce proves that a bucket keeps the first object of a name.
func WriteOnce(ctx context.Context, b Bucket) error {
	const name = "write-once"
	text := []byte("waldo wrote this object once, to see that it cannot be replaced\n")
	err := b.Put(ctx, name, text)
	if errors.Is(err, ErrExists) { // whatever it is: it was kept
		return nil
	}
	if err == nil {
		err = b.Put(ctx, name, []byte("replaced\n"))
	}
	switch {
	case err == nil:
		return ErrOverwrites
	case !errors.Is(err, ErrExists):
		return err
	}
	if was, err := b.Get(ctx, name, len(text)); err != nil {
		return err
	} else if !bytes.Equal(was, text) {
		return fmt.Errorf("%w (%s)", ErrOverwrites, name)
	}
	return nil
}

// whole reads an object of at most so many bytes.
func whole(r io.Reader, most int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%w: it has more than %d bytes", ErrUnreadable, most)
	}
	return b, err
}
