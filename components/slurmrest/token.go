package slurmrest

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// tokenLifetime bounds what a stolen token is worth; slurmctld has no way to take one back.
	tokenLifetime = 10 * time.Minute
	// tokenReserve is how long before its end a token is replaced: more than the longest call and a fair clock skew.
	tokenReserve = 3 * time.Minute
)

// TokenSource signs tokens for auth/jwt with the cluster's HS256 key and keeps the last one until shortly before it ends.
// It is safe for concurrent use.
type TokenSource struct {
	// KeyFile holds the key, as slurm.conf's AuthAltParameters=jwt_key does. It is read again for each token, so that a
	// rotated Secret is taken up.
	KeyFile string
	// User is who slurmctld takes the caller for.
	User string
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	mu    sync.Mutex
	token string
	ends  time.Time
}

// Token returns a token that is good for at least tokenReserve.
func (s *TokenSource) Token() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	if s.token != "" && now().Add(tokenReserve).Before(s.ends) {
		return s.token, nil
	}
	key, err := os.ReadFile(s.KeyFile)
	if err != nil {
		return "", fmt.Errorf("read the JWT key: %w", err)
	}
	if len(key) < 16 { // slurmctld itself refuses keys under 16 bytes
		return "", fmt.Errorf("the JWT key %s has %d bytes, slurmctld wants at least 16", s.KeyFile, len(key))
	}
	issued := now()
	// "sun" is Slurm's claim for the user name.
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iat": issued.Unix(), "exp": issued.Add(tokenLifetime).Unix(), "sun": s.User,
	}).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign a token for %s: %w", s.User, err)
	}
	s.token, s.ends = token, issued.Add(tokenLifetime)
	return token, nil
}

// Forget drops the kept token, so that the next one is signed with the key as it is now.
func (s *TokenSource) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = ""
}
