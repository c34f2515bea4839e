/* paper_impl.h: between paper.c (which figures meet) and paper_print.c (how they look). Inside report/ only. */
#ifndef KVB_REPORT_PAPER_IMPL_H
#define KVB_REPORT_PAPER_IMPL_H

#include "report/data.h"

#include <jansson.h>

enum { PAPER_REASONS = 16 };

struct paper_row {                            /* one published figure with its counterpart */
	const char *task, *method, *protocol; /* borrowed of the JSON; protocol "" = not stated */
	double retained;
	double published, tolerance, published_full; /* in points; full: of the same source, NAN = it gives none */
	double measured, lo, hi, measured_full;      /* in points; NAN = not known */
	int n;                                       /* samples, or repetitions */
	bool score;                                  /* points of 100; else a plain number */
	bool comparable;
	int reasons[PAPER_REASONS], n_reasons; /* into the group's list */
};

struct paper_group { /* figures of one source and model beside one target of ours */
	const char *source, *how, *model;
	char *target;
	struct paper_row *rows;
	int n_rows;
	char **reasons; /* told apart by letters in the tables */
	bool *blocking; /* [n_reasons]: no difference is given; else it is only to be known */
	int n_reasons;
};

struct paper_lack { /* figures of one kind without a counterpart */
	char *text;
	int n;
};

struct paper {
	json_t *about, *published, *suites; /* suites: NULL = not known */
	const char *title, *scale, *left_out;
	struct data d;
	struct paper_group *groups;
	int n_groups;
	struct paper_lack *lacks;
	int n_lacks;
	int cells_alone; /* measured, nothing published */
};

void paper_print(const struct paper *p, const char *format, struct strbuf *out);

#endif
