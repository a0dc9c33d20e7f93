package netns

import (
	"errors"
	"fmt"
	"net"
	"os"

	"waldo/internal/sandbox"
)

// Egress makes an egress from the sockets that a sandbox sent: the one for DNS, the proxy's, then one for each
// port. It closes the files and works on copies.
func Egress(files []*os.File, ports int) (w sandbox.Egress, err error) {
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("the egress: %w", err), closeEgress(w))
		}
	}()
	if len(files) != 2+ports {
		return w, fmt.Errorf("the sandbox sent %d sockets, not %d", len(files), 2+ports)
	}
	if w.Names, err = net.FilePacketConn(files[0]); err != nil {
		return w, err
	}
	if w.Proxy, err = net.FileListener(files[1]); err != nil {
		return w, err
	}
	for _, f := range files[2:] {
		l, err := net.FileListener(f)
		if err != nil {
			return w, err
		}
		w.TCP = append(w.TCP, l)
	}
	return w, nil
}

func closeEgress(w sandbox.Egress) (err error) {
	if w.Names != nil {
		err = w.Names.Close()
	}
	for _, l := range append(w.TCP, w.Proxy) {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}
