'use strict';

/* global elasticlunr */

// The search of mdBook splits text at spaces, so it finds no Chinese words. A query with Chinese characters is looked for as it
// stands, in the titles and texts of the search index; other queries are left to mdBook.
(function chineseSearch() {
    if (typeof elasticlunr === 'undefined') {
        return;
    }
    const CHINESE = /[\u3400-\u9fff]/;
    // How much of a text is shown before and after the first place where a word is found.
    const BEFORE = 30, AFTER = 120;
    const original = elasticlunr.Index.prototype.search;

    function count(text, word) {
        return text.split(word).length - 1;
    }

    elasticlunr.Index.prototype.search = function search(query, options) {
        if (!CHINESE.test(query)) {
            return original.call(this, query, options);
        }
        const words = query.toLowerCase().split(/\s+/).filter(word => word !== '');
        const docs = this.documentStore.docs;
        const results = [];
        for (const ref of Object.keys(docs)) {
            const doc = docs[ref];
            const title = (doc.title || '').toLowerCase(), body = (doc.body || '').toLowerCase();
            if (!words.every(word => title.includes(word) || body.includes(word))) {
                continue;
            }
            let score = 0;
            for (const word of words) {
                score += 10 * count(title, word) + count(body, word);
            }
            const start = Math.max(0, body.indexOf(words[0]) - BEFORE);
            const shown = (doc.body || '').substring(start, start + BEFORE + AFTER);
            results.push({ref, score, doc: Object.assign({}, doc, {body: shown})});
        }
        results.sort((one, other) => other.score - one.score);
        return results;
    };

    // The query of the page's address may have been searched before this script was loaded. mdBook does not search the same twice,
    // so it gets another query first.
    const bar = document.getElementById('mdbook-searchbar');
    if (bar !== null && CHINESE.test(bar.value)) {
        const query = bar.value;
        for (const text of [query + query, query]) {
            bar.value = text;
            bar.dispatchEvent(new Event('keyup'));
        }
    }
})();
