// Package gitserver serves bare repositories over HTTP for fetch and push. Git
// does all of it (git http-backend); this package only runs it as CGI.
package gitserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Handler serves the repositories below root. Anybody who reaches it may push
// to a repository whose configuration says http.receivepack: it is meant for an
// address that only this machine reaches.
func Handler(root string) (http.Handler, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("git server: git --exec-path: %w (is git installed?)", err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Dir:  root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + root,
			"GIT_HTTP_EXPORT_ALL=1",
			// Git refuses repositories of another owner; these are the box's.
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
			"GIT_CONFIG_NOSYSTEM=1", "HOME=" + root,
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// CGI needs the length before the body; git sends large pushes in chunks.
		if r.ContentLength < 0 {
			spooled, err := spool(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer os.Remove(spooled.Name())
			defer spooled.Close()
			r.Body = spooled
		}
		backend.ServeHTTP(w, r)
	}), nil
}

// spool writes the body to a temporary file and sets the request's length.
func spool(r *http.Request) (*os.File, error) {
	f, err := os.CreateTemp("", "berth-git-*")
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(f, r.Body)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	r.ContentLength = n
	r.TransferEncoding = nil
	return f, nil
}

// InitBare makes a bare repository at path that takes pushes, unless it exists.
func InitBare(path string) error {
	if _, err := os.Stat(filepath.Join(path, "HEAD")); err == nil {
		return nil
	}
	for _, argv := range [][]string{
		{"init", "--quiet", "--bare", "--initial-branch=main", path},
		{"--git-dir=" + path, "config", "http.receivepack", "true"},
	} {
		if out, err := exec.Command("git", argv...).CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
