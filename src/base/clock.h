#pragma once

#include <stdint.h>

/* CLOCK_MONOTONIC in microseconds and milliseconds (clock_gettime(2)); no wall clock is used for deadlines. */
uint64_t clock_monotonic_us(void);
uint64_t clock_monotonic_ms(void);
