package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-hpc/berth/renderer/site"
)

// Services are the programs that write the data: slurmctld, slurmdbd and MariaDB.
type Services interface {
	// Stop ends them, and keeps others from starting them.
	Stop(ctx context.Context) error
	// Open makes containers that have the volumes of the state and of the database, while the services are stopped.
	Open(ctx context.Context) (state, database Container, err error)
	// Stopped returns an error if somebody started one of them again.
	Stopped(ctx context.Context) error
	// Close removes what Open made. It may be called when Open failed, or was not called.
	Close(ctx context.Context) error
	// Start starts the services, waits until they work, and lets others start them again. It may be called when Stop failed.
	Start(ctx context.Context) error
}

// Restoration puts a backup in the place of a cluster's data.
type Restoration struct {
	Site     *site.Site
	Archive  *Archive
	Services Services
	Exec     Exec
	Paths    Paths
	// Say tells a person how far it is.
	Say func(format string, args ...any)
	// Patience bounds each of the two: until all has stopped and the volumes are there, and until all works again.
	Patience time.Duration
}

// Refuse says why the backup is not for the site; nil: it is.
func (r *Restoration) Refuse() error {
	a := r.Archive
	switch {
	case a.Cluster != r.Site.Cluster.Name:
		return fmt.Errorf("the backup is of cluster %s (site %s), site %s is cluster %s: Slurm takes no state of another cluster", a.Cluster, a.Site, r.Site.Name, r.Site.Cluster.Name)
	case release(a.Slurm) != r.Site.Slurm.Version:
		return fmt.Errorf("the backup is of Slurm %s, site %s is at %s: push slurm: version: %q, restore, then upgrade by another push", a.Slurm, r.Site.Name, r.Site.Slurm.Version, release(a.Slurm))
	}
	return nil
}

// Run stops the services, unpacks the backup beside the data, gives it the data's place by renames, and starts the services. An
// error before the renames leaves the data as it was. The services are started in any case, also when ctx ends meanwhile.
func (r *Restoration) Run(ctx context.Context) error {
	if err := r.Refuse(); err != nil {
		return err
	}
	err := r.replace(ctx)
	if err != nil {
		r.Say("starts again what was stopped")
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Patience)
	defer cancel()
	started := r.Services.Close(back)
	if started == nil {
		started = r.Services.Start(back)
	}
	switch {
	case err != nil && started != nil:
		return fmt.Errorf("nothing was restored: %w; and what was stopped is not up again: %w; the same command goes on from here", err, started)
	case err != nil:
		return fmt.Errorf("nothing was restored, all is as it was: %w", err)
	case started != nil:
		return fmt.Errorf("the backup is in its place, but: %w; what was there before lies in %s/.before and %s/.before", started, r.Paths.State, r.Paths.Database)
	}
	// What was there before is no longer needed: the restored works.
	for at, volume := range map[Container]string{controller: r.Paths.State, database: r.Paths.Database} {
		if _, err := r.Exec.ask(back, at, "rm", "-rf", volume+"/.before"); err != nil {
			r.Say("%s/.before in pod %s, what was there before, could not be deleted: %v", volume, at.Pod, err)
		}
	}
	return nil
}

// replace is Run between the stop and the start.
func (r *Restoration) replace(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	r.Say("stops slurmctld, slurmdbd and MariaDB")
	if err := r.Services.Stop(short); err != nil {
		return err
	}
	state, database, err := r.Services.Open(short)
	if err != nil {
		return err
	}
	// Of the image that will start on the state, not of the site's file: they differ while an upgrade is on its way.
	version, err := slurmVersion(ctx, r.Exec, state)
	if err != nil {
		return err
	}
	if release(version) != release(r.Archive.Slurm) {
		return fmt.Errorf("the backup is of Slurm %s, the cluster runs %s", r.Archive.Slurm, version)
	}
	volumes := map[Container]string{state: r.Paths.State, database: r.Paths.Database}
	err = r.unpack(ctx, state, database)
	if err == nil {
		err = r.Services.Stopped(ctx)
	}
	if err != nil {
		for at, volume := range volumes {
			_, _ = r.Exec.ask(context.WithoutCancel(ctx), at, "rm", "-rf", volume+"/.restored")
		}
		return err
	}
	r.Say("gives them the place of what is there")
	// From here on to the end, whoever interrupts.
	ctx = context.WithoutCancel(ctx)
	for _, at := range []Container{state, database} {
		if _, err := r.Exec.run(ctx, at, nil, "switch", volumes[at], "there"); err != nil {
			for _, at := range []Container{state, database} {
				if _, undo := r.Exec.run(ctx, at, nil, "switch", volumes[at], "back"); undo != nil {
					err = errors.Join(err, undo)
				}
			}
			return err
		}
	}
	return nil
}

// unpack puts both parts beside what they will replace.
func (r *Restoration) unpack(ctx context.Context, state, database Container) error {
	part, _ := r.Archive.part(statePart)
	r.Say("unpacks slurmctld's state, %s", size(part.Bytes))
	err := r.send(statePart, "", func(stdin io.Reader) error {
		_, err := r.Exec.run(ctx, state, stdin, "put-state", r.Paths.State, part.SHA256)
		return err
	})
	if err != nil {
		return fmt.Errorf("unpack slurmctld's state: %w", err)
	}
	part, _ = r.Archive.part(databasePart)
	r.Say("loads the database, %s", size(part.Bytes))
	// The last statement is answered only where all before it arrived and was right.
	const last = "\nSELECT 'whole', COUNT(*) FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema = '" + databaseName + "';\n"
	err = r.send(databasePart, last, func(stdin io.Reader) error {
		out, err := r.Exec.run(ctx, database, stdin, "put-database", r.Paths.Database)
		if err == nil && out != fmt.Sprintf("whole\t%d", r.Archive.Tables) {
			return fmt.Errorf("%d tables were sent, MariaDB says %q", r.Archive.Tables, out)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("load the database: %w", err)
	}
	return nil
}

// send gives a part, and last after it, to what reads it.
func (r *Restoration) send(name, last string, to func(io.Reader) error) error {
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := r.Archive.copy(writer, name)
		if err == nil {
			_, err = io.WriteString(writer, last)
		}
		writer.CloseWithError(err)
		sent <- err
	}()
	err := to(reader)
	_ = reader.Close()
	if broken := <-sent; broken != nil && !errors.Is(broken, io.ErrClosedPipe) && err == nil {
		err = broken
	}
	return err
}

// size is a number of bytes for people.
func size(bytes int64) string {
	const mebibyte = 1 << 20
	if bytes < mebibyte {
		return fmt.Sprintf("%d KiB", (bytes+1023)/1024)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(bytes)/mebibyte), ".0") + " MiB"
}
