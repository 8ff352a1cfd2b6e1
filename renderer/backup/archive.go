package backup

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The entries of a backup, which is a zip file: its table of contents is at its end, so that one that was cut off cannot be opened.
const (
	format       = 1
	manifestName = "manifest.json"
	statePart    = "state.tar"
	databasePart = "database.sql"
)

// Manifest says what a backup holds.
type Manifest struct {
	Format  int    `json:"format"`
	Site    string `json:"site"`
	Cluster string `json:"cluster"` // Slurm's ClusterName
	// Began is when the state was copied, Ended when the database was whole.
	Began   time.Time      `json:"began"`
	Ended   time.Time      `json:"ended"`
	Berth   string         `json:"berth"`
	Slurm   string         `json:"slurm"`   // 24.11.5
	MariaDB string         `json:"mariadb"` // 11.8.9-MariaDB
	Jobs    map[string]int `json:"jobs"`    // in the queue, by state
	Tables  int            `json:"tables"`  // of the database
	Parts   []Part         `json:"parts"`
}

// Part is an entry with data.
type Part struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Queue says what jobs there were: 2 RUNNING, 40 PENDING.
func (m *Manifest) Queue() string {
	var words []string
	for _, state := range slices.Sorted(maps.Keys(m.Jobs)) {
		words = append(words, fmt.Sprintf("%d %s", m.Jobs[state], state))
	}
	if len(words) == 0 {
		return "no jobs"
	}
	return strings.Join(words, ", ")
}

// writer writes a backup from front to back.
type writer struct {
	zip    *zip.Writer
	parts  []Part
	tables int
}

func newWriter(to io.Writer) *writer { return &writer{zip: zip.NewWriter(to)} }

// part adds an entry with what fill writes.
func (w *writer) part(name string, fill func(io.Writer) error) error {
	entry, err := w.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: time.Now()})
	if err != nil {
		return err
	}
	look := newInspector(name)
	err = fill(io.MultiWriter(entry, look))
	found, wrong := look.end()
	if err == nil {
		err = wrong
	}
	if err != nil {
		return err
	}
	w.parts = append(w.parts, found)
	w.tables += look.tables
	return nil
}

// close writes the manifest, which completes it, and the table of contents.
func (w *writer) close(m *Manifest) error {
	m.Parts, m.Tables = w.parts, w.tables
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	entry, err := w.zip.Create(manifestName)
	if err != nil {
		return err
	}
	if _, err := entry.Write(append(text, '\n')); err != nil {
		return err
	}
	return w.zip.Close()
}

// inspector reads a part as it passes, and says whether it is whole.
type inspector struct {
	name   string
	sum    hash.Hash
	bytes  int64
	tables int

	pipe *io.PipeWriter
	done chan error
}

func newInspector(name string) *inspector {
	reader, pipe := io.Pipe()
	i := &inspector{name: name, sum: sha256.New(), pipe: pipe, done: make(chan error, 1)}
	go func() {
		var err error
		if name == statePart {
			err = inspectState(reader)
		} else {
			i.tables, err = inspectDump(reader)
		}
		_, rest := io.Copy(io.Discard, reader)
		i.done <- errors.Join(err, rest)
	}()
	return i
}

func (i *inspector) Write(p []byte) (int, error) {
	i.sum.Write(p)
	i.bytes += int64(len(p))
	return i.pipe.Write(p)
}

func (i *inspector) end() (Part, error) {
	_ = i.pipe.Close()
	if err := <-i.done; err != nil {
		return Part{}, fmt.Errorf("%s is not whole: %w", i.name, err)
	}
	return Part{Name: i.name, Bytes: i.bytes, SHA256: hex.EncodeToString(i.sum.Sum(nil))}, nil
}

// inspectState reads a tar of the state volume: a queue must be in it, and nothing that would be unpacked elsewhere.
func inspectState(r io.Reader) error {
	archive := tar.NewReader(r)
	cluster := false
	for {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%s would lie outside of it", header.Name)
		}
		switch header.Typeflag {
		case tar.TypeReg, tar.TypeDir:
		case tar.TypeSymlink:
			if path.IsAbs(header.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), header.Linkname)) {
				return fmt.Errorf("%s leads to %s, outside of it", header.Name, header.Linkname)
			}
		default:
			return fmt.Errorf("%s is no file", header.Name)
		}
		cluster = cluster || name == "state/clustername"
	}
	if !cluster {
		return errors.New("there is no state/clustername")
	}
	return nil
}

// inspectDump counts the tables of a dump, and looks for the line that mariadb-dump ends with.
func inspectDump(r io.Reader) (tables int, err error) {
	lines := bufio.NewReaderSize(r, 1<<20)
	last := []byte{}
	for {
		line, long, err := lines.ReadLine() // the beginning of each line; what is too long for the buffer are values
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		if bytes.HasPrefix(line, []byte("CREATE TABLE ")) {
			tables++
		}
		if len(line) > 0 {
			last = append(last[:0], line[:min(len(line), 64)]...)
		}
		for long && err == nil {
			_, long, err = lines.ReadLine()
		}
		if err != nil {
			break // the line before it is the last
		}
	}
	if !bytes.HasPrefix(last, []byte("-- Dump completed")) {
		return 0, errors.New("the dump does not end as a completed one does")
	}
	if tables == 0 {
		return 0, errors.New("the dump has no table")
	}
	return tables, nil
}

// Archive is a backup that was read to its end and is whole.
type Archive struct {
	Manifest
	zip *zip.Reader
}

// Open reads a backup to its end.
func Open(file io.ReaderAt, size int64) (*Archive, error) {
	z, err := zip.NewReader(file, size)
	if err != nil {
		return nil, fmt.Errorf("no backup, or one that was cut off: %w", err)
	}
	a := &Archive{zip: z}
	text, err := z.Open(manifestName)
	if err != nil {
		return nil, fmt.Errorf("no backup of berth's: it has no %s", manifestName)
	}
	defer text.Close()
	if err := json.NewDecoder(io.LimitReader(text, 1<<20)).Decode(&a.Manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	if a.Format != format {
		return nil, fmt.Errorf("a backup of format %d, made by berth %s; this berth reads format %d", a.Format, a.Berth, format)
	}
	tables := 0
	for _, name := range []string{statePart, databasePart} {
		look := newInspector(name)
		err := a.copy(look, name)
		found, wrong := look.end()
		if err == nil {
			err = wrong
		}
		if err != nil {
			return nil, fmt.Errorf("damaged: %w", err)
		}
		if want, ok := a.part(name); !ok || found != want {
			return nil, fmt.Errorf("damaged: %s is not what %s says of it", name, manifestName)
		}
		tables += look.tables
	}
	if tables != a.Tables {
		return nil, fmt.Errorf("damaged: %d tables, %s says %d", tables, manifestName, a.Tables)
	}
	return a, nil
}

func (a *Archive) part(name string) (Part, bool) {
	i := slices.IndexFunc(a.Parts, func(p Part) bool { return p.Name == name })
	if i < 0 {
		return Part{}, false
	}
	return a.Parts[i], true
}

// copy writes an entry's data.
func (a *Archive) copy(to io.Writer, name string) error {
	entry, err := a.zip.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer entry.Close()
	if _, err := io.Copy(to, entry); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
