// Package redisheed keeps the books of several processes in Redis.
package redisheed
