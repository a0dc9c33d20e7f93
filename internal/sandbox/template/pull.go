package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	registry "github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// transport bounds every step of a download but its length, which the bounds hold.
func transport() http.RoundTripper {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 30 * time.Second,
	}
}

// fullName returns the full name of an image, as its digest is stored under.
func fullName(text string) (string, error) {
	ref, err := name.ParseReference(text)
	if err != nil {
		return "", err
	}
	return ref.Name(), nil
}

// pull takes an image from its registry, unless it is stored already. It uses the credentials of docker login,
// and HTTPS except for a registry on this machine.
func (s *Store) pull(ctx context.Context, text string, fresh bool) (Template, error) {
	ref, err := name.ParseReference(text)
	if err != nil {
		return Template{},
			Unfit{fmt.Errorf("template %q: it is neither host, nor a path with a slash or dot before it, nor an image: %w",
				text, err)}
	}
	if digest := s.noted(ref.Name()); digest != "" && !fresh {
		if t, ok := s.kept(pinned(text, digest), digest); ok {
			return t, nil
		}
	}
	puller, err := remote.NewPuller(remote.WithTransport(transport()),
		remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("waldo"))
	if err != nil {
		return Template{}, err
	}
	open := func(d v1.Descriptor) (io.ReadCloser, error) {
		if !isDigest(d.Digest.String()) {
			return nil, fmt.Errorf("digest %q: only sha256 is taken", d.Digest)
		}
		l, err := puller.Layer(ctx, ref.Context().Digest(d.Digest.String()))
		if err != nil {
			return nil, err
		}
		return l.Compressed()
	}
	manifest, digest, err := manifest(ctx, puller, ref)
	if no := (*registry.Error)(nil); errors.As(err, &no) && no.StatusCode == http.StatusNotFound {
		return Template{}, Unfit{fmt.Errorf("template %s: the registry has no such image", text)}
	} else if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", text, err)
	}
	t, ok := s.kept(pinned(text, digest), digest)
	if !ok {
		t, err = s.keep(ctx, pinned(text, digest), digest, func(t *tree) error {
			i, err := readImage(manifest, open, s.bounds)
			if err != nil {
				return err
			}
			return i.unpack(ctx, t)
		})
		if err != nil {
			return Template{}, err
		}
	}
	return t, s.note(ref.Name(), digest)
}

// pinned returns a reference with the digest of its image.
func pinned(text, digest string) string {
	text, _, _ = strings.Cut(text, "@")
	return text + "@" + digest
}

// manifest fetches the manifest of the image for this machine and returns it with its digest. A reference with
// a digest must match it.
func manifest(ctx context.Context, puller *remote.Puller, ref name.Reference) ([]byte, string, error) {
	for range 3 { // an index may name an index
		d, err := puller.Get(ctx, ref)
		if err != nil {
			return nil, "", err
		}
		if len(d.Manifest) > maxDocument {
			return nil, "", ErrTooMuch
		}
		if asked, ok := ref.(name.Digest); ok {
			if err := sameDigest(d.Manifest, asked.DigestStr()); err != nil {
				return nil, "", err
			}
		}
		if !d.MediaType.IsIndex() {
			return d.Manifest, d.Digest.String(), sameDigest(d.Manifest, d.Digest.String())
		}
		one, err := choose(d.Manifest)
		if err != nil {
			return nil, "", err
		}
		ref = ref.Context().Digest(one.Digest.String())
	}
	return nil, "", fmt.Errorf("indexes in indexes, too deep")
}
